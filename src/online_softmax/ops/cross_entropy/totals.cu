// Sums over the rows of a batch: the divisors of "mean" before the loss, and the loss from the rows' losses after it.
#include "../../_cuda/async.cuh"
#include "totals.cuh"

using namespace online_softmax;

using Compute = COMPUTE;
using Label = LABEL;
constexpr int kThreads = 512;

__device__ Pair sum_of_block(Pair mine) {
    __shared__ Pair of_warp[kThreads / 32];
    return block_sum(mine, of_warp, kThreads / 32);
}

// load(row) for the rows from `from` to `to` that fall to this thread, `step` apart, many together: all of them are asked for
// before the first is used, for one by one each would wait for memory.  Then add(what was loaded, row, whether there is one).
template <class Load, class Add>
__device__ __forceinline__ void for_rows(int64 from, int64 to, int64 step, Load load, Add add) {
    constexpr int at_a_time = 20;
    for (int64 first = from + threadIdx.x; first < to; first += at_a_time * step) {
        decltype(load(first)) found[at_a_time];
#pragma unroll
        for (int i = 0; i < at_a_time; ++i) {  // beyond the last row the first one again, to no effect
            const int64 row = first + i * step;
            found[i] = load(row < to ? row : first);
        }
        asm volatile("" ::: "memory");  // no load is put off until its result is used
#pragma unroll
        for (int i = 0; i < at_a_time; ++i) add(found[i], first + i * step, first + i * step < to);
    }
}

// All rows by one block if it can do it, else by `blocks`, for the entries that finish.
template <class Load, class Add>
__device__ __forceinline__ void for_all_rows(int64 rows, int64 blocks, Load load, Add add) {
    for_rows(int64(blockIdx.x) * kThreads, rows, blocks * kThreads, load, add);
}

// Of at most kThreads blocks.
__device__ Pair sum_of_pairs(const Pair* partial, int64 count) {
    return sum_of_block(threadIdx.x < count ? partial[threadIdx.x] : Pair{0, 0});
}

// The class weights as row kernels take them (weights.cuh), by kWeighing blocks, `block` one of them: the sum of its share
// goes to weighed[block], and four copies follow, `shift` elements apart, of which the first begins with the first class,
// the second with the second one, and so on; no copies if shift is 0.
constexpr int kWeighing = 8;
__device__ void weigh_classes(int block, const Compute* weight, int64 classes, Compute* weighed, int64 shift) {
    const int64 share = (classes + kWeighing - 1) / kWeighing, from = block * share;
    const int64 to = from + share < classes ? from + share : classes;
    Compute* const copies = weighed + kWeighing;
    double sum = 0;
    for_rows(from, to, kThreads, [&](int64 c) { return weight[c]; }, [&](Compute one, int64 c, bool there) {
        sum += there ? double(one) : 0;
        if (shift == 0 || !there) return;
#pragma unroll
        for (int later = 0; later < 4; ++later)
            if (c >= later) copies[later * shift + c - later] = one;
    });
    const Pair all = sum_of_block({sum, 0});
    if (threadIdx.x == 0) weighed[block] = Compute(all.first);
}

// (sum of the kept rows' class weights, number of kept rows), by `counting` blocks.  A label that is no class makes a
// weighted sum NaN.  Both are *given, or `number`, where there are no labels to count.  Further blocks weigh classes.
extern "C" __global__ void __launch_bounds__(kThreads)
count_rows(const Label* labels, const Compute* weight, const Compute* given, Pair* partial, Compute* divisors,
           Compute* weighed, double number, int64 stride, int64 rows, int64 classes, int64 ignore_index, int64 counting,
           int64 shift) {
    let_next_launch_begin();  // it asks for the divisors when it has asked for its logits
    if (blockIdx.x >= counting) {
        weigh_classes(blockIdx.x - int(counting), weight, classes, weighed, shift);
        return;
    }
    if (labels == nullptr) {
        if (threadIdx.x < 2) divisors[threadIdx.x] = divisor_of(given == nullptr ? Compute(number) : *given);
        return;
    }
    Pair sum{0, 0};
    const auto label_of = [&](int64 row) { return labels[row * stride]; };
    if (weight == nullptr) {
        for_all_rows(rows, counting, label_of, [&](Label label, int64, bool there) {
            sum.second += there && int64(label) != ignore_index;
        });
        sum.first = sum.second;
    } else {
        struct Known { Compute weight; bool kept; };
        const auto known_of = [&](int64 row) -> Known {
            const int64 label = label_of(row);
            const bool known = label >= 0 && label < classes;
            const Compute of_class = *(known ? weight + label : divisors);  // without a branch, from anywhere
            return {known ? of_class : not_a_number<Compute>(), label != ignore_index};
        };
        for_all_rows(rows, counting, known_of, [&](const Known& row, int64, bool there) {
            sum.first += there && row.kept ? double(row.weight) : 0, sum.second += there && row.kept;
        });
    }
    sum = sum_of_block(sum);
    if (threadIdx.x != 0) return;
    if (counting > 1) partial[blockIdx.x] = sum;
    else divisors[0] = divisor_of(Compute(sum.first)), divisors[1] = divisor_of(Compute(sum.second));
}

extern "C" __global__ void __launch_bounds__(kThreads)
count_finish(const Pair* partial, int64 count, Compute* divisors) {
    const Pair sum = sum_of_pairs(partial, count);
    if (threadIdx.x == 0) divisors[0] = divisor_of(Compute(sum.first)), divisors[1] = divisor_of(Compute(sum.second));
}

// sum of losses / divisors[0] + z_loss * sum of lse^2 of kept rows / divisors[1].  What rows and divisors are is read past
// the first cache, out of caution: this launch may have begun before they were written, and waits for that.
extern "C" __global__ void __launch_bounds__(kThreads)
loss_rows(const Compute* losses, const Compute* lses, const Label* labels, Pair* partial, const Compute* divisors,
          Compute* loss, int64 stride, int64 rows, int64 ignore_index, double z_loss) {
    wait_for_previous_launch();
    Pair sum{0, 0};
    for_all_rows(rows, gridDim.x, [&](int64 row) { return __ldcg(losses + row); },
             [&](Compute loss, int64, bool there) { sum.first += there ? double(loss) : 0; });
    if (z_loss != 0) {
        struct Known { Compute lse; bool kept; };
        const auto known_of = [&](int64 row) -> Known {
            return {__ldcg(lses + row), labels == nullptr || int64(labels[row * stride]) != ignore_index};
        };
        for_all_rows(rows, gridDim.x, known_of, [&](const Known& row, int64, bool there) {
            sum.second += there && row.kept ? double(row.lse) * double(row.lse) : 0;
        });
    }
    sum = sum_of_block(sum);
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) partial[blockIdx.x] = sum;
    else *loss = reduced(sum, __ldcg(divisors), __ldcg(divisors + 1), z_loss);
}

extern "C" __global__ void __launch_bounds__(kThreads)
loss_finish(const Pair* partial, int64 count, double z_loss, const Compute* divisors, Compute* loss) {
    const Pair sum = sum_of_pairs(partial, count);
    if (threadIdx.x == 0) *loss = reduced(sum, __ldcg(divisors), __ldcg(divisors + 1), z_loss);
}
