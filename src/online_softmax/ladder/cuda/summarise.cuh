// The state of a row, by a whole block of threads: what online.cu is about, and what fused.cu builds on.
#pragma once

#include "rung.cuh"

namespace online_softmax::ladder {

// The states of a warp's 32 lanes merged in five steps, each lane with one 16, 8, 4, 2 and 1 lanes away.
__device__ __forceinline__ State<Number> over_warp(State<Number> state) {
    for (int step = kWarp / 2; step > 0; step /= 2) {
        const State<Number> other = {__shfl_xor_sync(kAllLanes, state.m, step),
                                     __shfl_xor_sync(kAllLanes, state.s, step)};
        state = merge(state, other, Exp());
    }
    return state;
}

// Read once: every thread keeps a state of the elements it sees, then states are merged.  Every thread gets the row's.
__device__ __forceinline__ State<Number> summarise(const Element* x, Index columns) {
    State<Number> state = empty_state<Number>();
    for_my_columns(x, columns, [&](Index, const Number* x, int count) {
        // Eight elements (four of double) join at once: one correction of the sum for all, not one an element.
        State<Number> parts[kAhead + 1] = {state};
        for (int k = 0; k < count; ++k) parts[k + 1] = {x[k], Number(1)};
        state = merge_all(parts, count + 1, Exp());
    });
    state = over_warp(state);

    __shared__ State<Number> of_warp[kMostWarps];
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = state;
    __syncthreads();
    const int warps = blockDim.x / kWarp, lane = threadIdx.x % kWarp;
    return over_warp(lane < warps ? of_warp[lane] : empty_state<Number>());
}

}  // namespace online_softmax::ladder
