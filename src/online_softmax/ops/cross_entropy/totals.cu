// Sums over the rows of a batch: the divisors of "mean" before the loss, and the loss from the rows' losses after it.
#include "../../_cuda/async.cuh"
#include "totals.cuh"

using namespace online_softmax;

using Compute = COMPUTE;
using Label = LABEL;
constexpr int kThreads = 512;

// fn(row) summed over all rows if one block can do it, else over every gridDim.x-th stretch of them, for the entries that
// finish.  Several rows at a time: the memory answers after a thousand instructions.
template <class Fn>
__device__ Pair sum_of_rows(int64 rows, Fn fn) {
    Pair sum{0, 0};
#pragma unroll 8
    for (int64 row = int64(blockIdx.x) * kThreads + threadIdx.x; row < rows; row += int64(gridDim.x) * kThreads) {
        const Pair one = fn(row);
        sum.first += one.first, sum.second += one.second;
    }
    __shared__ Pair of_warp[kThreads / 32];
    return block_sum(sum, of_warp, kThreads / 32);
}

// (sum of the kept rows' class weights, number of kept rows).  A label that is no class makes a weighted sum NaN.
// Both are *given, or `number`, where there are no labels to count.
extern "C" __global__ void __launch_bounds__(kThreads)
count_rows(const Label* labels, const Compute* weight, const Compute* given, Pair* partial, Compute* divisors,
           double number, int64 stride, int64 rows, int64 classes, int64 ignore_index) {
    let_next_launch_begin();  // it asks for the divisors when it has asked for its logits
    if (labels == nullptr) {
        if (threadIdx.x < 2) divisors[threadIdx.x] = divisor_of(given == nullptr ? Compute(number) : *given);
        return;
    }
    const Pair sum = sum_of_rows(rows, [&](int64 row) -> Pair {
        return counted(int64(labels[row * stride]), weight, classes, ignore_index);
    });
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) partial[blockIdx.x] = sum;
    else divisors[0] = divisor_of(Compute(sum.first)), divisors[1] = divisor_of(Compute(sum.second));
}

extern "C" __global__ void __launch_bounds__(kThreads)
count_finish(const Pair* partial, int64 count, Compute* divisors) {
    const Pair sum = sum_of_rows(count, [&](int64 i) { return partial[i]; });
    if (threadIdx.x == 0) divisors[0] = divisor_of(Compute(sum.first)), divisors[1] = divisor_of(Compute(sum.second));
}

// sum of losses / divisors[0] + z_loss * sum of lse^2 of kept rows / divisors[1].  What rows and divisors are is read past
// the first cache, out of caution: this launch may have begun before they were written, and waits for that.
extern "C" __global__ void __launch_bounds__(kThreads)
loss_rows(const Compute* losses, const Compute* lses, const Label* labels, Pair* partial, const Compute* divisors,
          Compute* loss, int64 stride, int64 rows, int64 ignore_index, double z_loss) {
    wait_for_previous_launch();
    const Pair sum = sum_of_rows(rows, [&](int64 row) -> Pair {
        const double of_row = __ldcg(losses + row);
        const bool kept = z_loss != 0 && (labels == nullptr || int64(labels[row * stride]) != ignore_index);
        if (!kept) return {of_row, 0};
        const double lse = __ldcg(lses + row);
        return {of_row, lse * lse};
    });
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) partial[blockIdx.x] = sum;
    else *loss = reduced(sum, __ldcg(divisors), __ldcg(divisors + 1), z_loss);
}

extern "C" __global__ void __launch_bounds__(kThreads)
loss_finish(const Pair* partial, int64 count, double z_loss, const Compute* divisors, Compute* loss) {
    const Pair sum = sum_of_rows(count, [&](int64 i) { return partial[i]; });
    if (threadIdx.x == 0) *loss = reduced(sum, __ldcg(divisors), __ldcg(divisors + 1), z_loss);
}
