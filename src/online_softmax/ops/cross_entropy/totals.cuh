// Sums over the rows of a batch, in fp64 and in an order that depends on the number of rows alone: the same bits every run.
#pragma once
#include "../../_cuda/functions.cuh"

namespace online_softmax {

struct Pair { double first, second; };

__device__ __forceinline__ Pair lane_sum(Pair mine) {
    return {lane_sum<32>(mine.first), lane_sum<32>(mine.second)};
}

// The sums of the pairs that the first `warps` warps of the block hold, in every thread.  `of_warp`, with room for a pair
// a warp, is shared memory that no later sum may use.
__device__ __forceinline__ Pair block_sum(Pair mine, Pair* of_warp, int warps) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp < warps) {
        mine = lane_sum(mine);
        if (lane == 0) of_warp[warp] = mine;
    }
    __syncthreads();
    return warps == 1 ? of_warp[0] : lane_sum(lane < warps ? of_warp[lane] : Pair{0, 0});
}

// What a row adds to (sum of the kept rows' class weights, number of kept rows).  A label that is no class makes a weighted
// sum NaN.
template <class A>
__device__ __forceinline__ Pair counted(int64 label, const A* weight, int64 classes, int64 ignore_index) {
    if (label == ignore_index) return {0, 0};
    if (weight == nullptr) return {1, 1};
    return {label >= 0 && label < classes ? double(weight[label]) : not_a_number<double>(), 1};
}

// What "mean" divides by: NaN for 0, so that loss and gradient of rows that are kept, but weigh nothing together, are NaN.
template <class A>
__device__ __forceinline__ A divisor_of(A sum) {
    return sum == A(0) ? not_a_number<A>() : sum;
}

// The loss from (sum of the rows' losses, sum of lse^2 of kept rows).
template <class A>
__device__ __forceinline__ A reduced(Pair sum, A by_class, A by_row, double z_loss) {
    const double of_classes = sum.first / double(by_class);
    return A(z_loss == 0 ? of_classes : of_classes + z_loss * sum.second / double(by_row));
}

}  // namespace online_softmax
