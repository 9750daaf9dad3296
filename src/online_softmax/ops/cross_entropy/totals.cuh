// What stands in front of a batch's row kernel and behind it: the numbers that "mean" divides by, and the sum of the rows'
// losses, made by whichever block writes the last of them.
#pragma once
#include "../../_cuda/async.cuh"
#include "../../_cuda/functions.cuh"

namespace online_softmax {

// Made by count_rows (totals.cu), which goes before; row kernels know it by its first two numbers, as `divisors`.
template <class Compute>
struct Totals {
    Compute by_class, by_row;  // what class terms and z terms are divided by
    Compute* loss;             // where the loss of all rows goes; null: nobody asks the row kernel for it
    const Compute *losses, *lses;
    const void* labels;  // null: no row is ignored
    int64 stride, rows, ignore_index;
    double z_loss;
    uint32 arrived;  // rows whose losses are written
};
static_assert(sizeof(Totals<float>) <= 96 && sizeof(Totals<double>) <= 96);  // totals.py allots as much

struct Pair { double first, second; };

// The sums of all threads' pairs, in thread 0.
template <int SIZE>
__device__ __forceinline__ Pair block_sum(Pair mine) {
    __shared__ Pair of_warp[SIZE / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    mine = {lane_sum<32>(mine.first), lane_sum<32>(mine.second)};
    if (lane == 0) of_warp[warp] = mine;
    __syncthreads();
    mine = lane < SIZE / 32 ? of_warp[lane] : Pair{0, 0};
    return {lane_sum<32>(mine.first), lane_sum<32>(mine.second)};
}

// fn(row) of every `step`-th row from `first` on.  Several at a time: the memory answers after a thousand instructions.
template <int AT_ONCE, class Fn>
__device__ __forceinline__ Pair sum_of_rows(int64 first, int64 step, int64 rows, Fn fn) {
    Pair sum{0, 0};
#pragma unroll AT_ONCE
    for (int64 row = first; row < rows; row += step) {
        const Pair one = fn(row);
        sum.first += one.first, sum.second += one.second;
    }
    return sum;
}

// The loss of a row, and lse^2 where z-loss counts the row.  From the second cache: other blocks wrote them.
template <class Label, class Compute>
__device__ __forceinline__ Pair loss_of_row(const Totals<Compute>& totals, int64 row) {
    const auto* labels = static_cast<const Label*>(totals.labels);
    const double loss = __ldcg(totals.losses + row);
    if (totals.z_loss == 0 || (labels && int64(labels[row * totals.stride]) == totals.ignore_index)) return {loss, 0};
    const double lse = __ldcg(totals.lses + row);
    return {loss, lse * lse};
}

// sum of losses / by_class + z_loss * sum of lse^2 of kept rows / by_row.
template <class Compute>
__device__ __forceinline__ Compute reduced(Pair sum, const Totals<Compute>& totals) {
    const double of_classes = sum.first / double(totals.by_class);
    return Compute(totals.z_loss == 0 ? of_classes : of_classes + totals.z_loss * sum.second / double(totals.by_row));
}

// Of the thread that has just written a row's loss and lse: whether all other rows' are written too.  It waits here for
// them to be seen by everyone; other warps go on writing gradients meanwhile.
template <class Compute>
__device__ __forceinline__ bool was_last_row(const Compute* divisors) {
    auto& totals = *reinterpret_cast<Totals<Compute>*>(const_cast<Compute*>(divisors));
    if (totals.loss == nullptr) return false;
    __threadfence();
    return atomicAdd(&totals.arrived, 1u) == totals.rows - 1;
}

// The end of every row kernel, come to by all threads of all blocks.  In an order that depends on the number of rows and
// of threads alone, whichever block it is: the same bits every run.
template <class Label, int SIZE, class Compute>
__device__ __forceinline__ void sum_losses_after(bool last_row, const Compute* divisors) {
    if (!__syncthreads_or(last_row)) return;
    __threadfence();
    const auto& totals = *reinterpret_cast<const Totals<Compute>*>(divisors);
    constexpr int at_once = SIZE > 256 ? 4 : 8;  // large blocks have fewer rows a thread, and fewer registers
    const Pair sum = block_sum<SIZE>(
        sum_of_rows<at_once>(threadIdx.x, SIZE, totals.rows, [&](int64 row) { return loss_of_row<Label>(totals, row); }));
    if (threadIdx.x == 0) *totals.loss = reduced(sum, totals);
}

}  // namespace online_softmax
