// What every rung on the GPU includes: nothing from a toolkit, so that NVRTC alone compiles it.
// ELEMENT, the dtype of the arrays, is given on the compiler's command line: float, double, float16 or bfloat16.
#pragma once

#include "../../_cuda/functions.cuh"  // widen, Narrow: between ELEMENT and the number computed with; Exp: exp(x), x <= 0
#include "../../state/state.h"        // State, empty_state, merge

namespace online_softmax::ladder {

using Index = long long;
using Element = ELEMENT;
using Number = decltype(widen(Element{}));  // float for 16-bit elements

__device__ __forceinline__ Element narrow(Number value) { return Narrow<Element>::one(value); }

constexpr int kWarp = 32;            // threads that can exchange registers by a shuffle
constexpr int kMostWarps = 1024 / kWarp;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kBlock = kMostWarps * kWarp;  // threads of a block, where a block takes a row
constexpr int kAhead = sizeof(Element) == 8 ? 4 : 8;  // elements a thread reads at once

// fn(column, elements, count) for all columns of thread t: t, t + 1024, t + 2048, ...  A warp reads 32 neighbours
// in one transaction, and all kAhead loads of a thread are on their way before the first is used: memory answers
// after hundreds of cycles, and only bytes in flight hide that.
template <class Fn>
__device__ __forceinline__ void for_my_columns(const Element* x, Index columns, Fn fn) {
    Index i = threadIdx.x;
    for (; i + (kAhead - 1) * kBlock < columns; i += kAhead * kBlock) {
        Element read[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) read[k] = x[i + k * kBlock];
        Number values[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) values[k] = widen(read[k]);
        fn(i, values, kAhead);
    }
    for (; i < columns; i += kBlock) {
        const Number value[1] = {widen(x[i])};
        fn(i, value, 1);
    }
}

// Stores what is not read again, and asks the L2 cache to keep the rows instead, which are.
template <class T>
__device__ __forceinline__ void store(T* to, Number value) {
    const T element = narrow(value);
    if constexpr (sizeof(T) == 2) __stcs(&to->bits, element.bits);
    else __stcs(to, element);
}

}  // namespace online_softmax::ladder

// Every rung has the same arguments.  A softmax writes `result`; a loss reads `target`, and writes `loss` and, as its
// gradient, `result`.
#define RUNG extern "C" __global__ void rung RUNG_ARGUMENTS
// One block a row, two (of double, at least one) at a time on each multiprocessor: while the threads of one wait for one
// another, the other reads.
#define BLOCK_RUNG                                                                                  \
    extern "C" __global__ void __launch_bounds__(online_softmax::ladder::kBlock,                    \
                                                 sizeof(online_softmax::ladder::Element) == 8 ? 1 : 2) rung RUNG_ARGUMENTS
#define RUNG_ARGUMENTS                                                                              \
    (const online_softmax::ladder::Element* logits, const online_softmax::ladder::Index* target,    \
     online_softmax::ladder::Element* result, online_softmax::ladder::Number* loss,                 \
     online_softmax::ladder::Index rows, online_softmax::ladder::Index columns)
