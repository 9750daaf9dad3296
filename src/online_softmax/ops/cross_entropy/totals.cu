// Sums over the rows of a batch: the divisors of "mean" before the loss, and, of batches too large for one block, the loss
// from the rows' losses after it.  In fp64 and in an order that depends on the number of rows alone.
#include "totals.cuh"

using namespace online_softmax;

using Compute = COMPUTE;
using Label = LABEL;
constexpr int kThreads = 512;

// All rows if one block can do it, else every gridDim.x-th stretch of them, for the entries that finish.
template <class Fn>
__device__ Pair sum_here(int64 rows, Fn fn) {
    const int64 first = int64(blockIdx.x) * kThreads + threadIdx.x;
    return block_sum<kThreads>(sum_of_rows<8>(first, int64(gridDim.x) * kThreads, rows, fn));
}

// (sum of the kept rows' class weights, number of kept rows).  A label that is no class makes a weighted sum NaN.
// Both are *given, or `number`, where the number is known: then there are no labels to count.
extern "C" __global__ void __launch_bounds__(kThreads)
count_rows(const Label* counted, const Compute* weight, const Compute* given, Pair* partial, Totals<Compute>* totals,
           Compute* loss, const Compute* losses, const Compute* lses, const Label* labels, double number, int64 stride,
           int64 rows, int64 classes, int64 ignore_index, double z_loss) {
    let_next_launch_begin();  // it asks for the divisors when it has asked for its logits
    Pair sum{number, number};
    if (given != nullptr) sum = {double(*given), double(*given)};
    if (counted != nullptr) {
        sum = sum_here(rows, [&](int64 row) -> Pair {
            const int64 label = counted[row * stride];
            if (label == ignore_index) return {0, 0};
            if (weight == nullptr) return {1, 1};
            return {label >= 0 && label < classes ? double(weight[label]) : not_a_number<double>(), 1};
        });
    }
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) partial[blockIdx.x] = sum;
    if (blockIdx.x == 0)
        *totals = {Compute(sum.first), Compute(sum.second), loss, losses, lses, labels, stride, rows, ignore_index, z_loss, 0};
}

extern "C" __global__ void __launch_bounds__(kThreads)
count_finish(const Pair* partial, int64 count, Totals<Compute>* totals) {
    const Pair sum = sum_here(count, [&](int64 i) { return partial[i]; });
    if (threadIdx.x == 0) totals->by_class = Compute(sum.first), totals->by_row = Compute(sum.second);
}

extern "C" __global__ void __launch_bounds__(kThreads)
loss_rows(Pair* partial, const Totals<Compute>* totals, Compute* loss) {
    wait_for_previous_launch();
    const Pair sum = sum_here(totals->rows, [&](int64 row) { return loss_of_row<Label>(*totals, row); });
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) partial[blockIdx.x] = sum;
    else *loss = reduced(sum, *totals);
}

extern "C" __global__ void __launch_bounds__(kThreads)
loss_finish(const Pair* partial, int64 count, const Totals<Compute>* totals, Compute* loss) {
    const Pair sum = sum_here(count, [&](int64 i) { return partial[i]; });
    if (threadIdx.x == 0) *loss = reduced(sum, *totals);
}
