// Between the reads of sharded logits, one thread a row: what a process tells the others about its part of the row, and
// what everybody's parts make together.  rows.py and loss.py say the same in array operations, each of them a launch.
//
// A process's columns are (lse, lse_low, target logit) and, with smoothing, (sum of w_c (lse - x_c), sum of w_c) over
// its classes; a target logit that is not among them is -0, which adds nothing.
#include "../ops/cross_entropy/parts.cuh"

using namespace online_softmax;

using Input = INPUT;
using Compute = COMPUTE;
using Label = LABEL;
constexpr int kThreads = 128;

__device__ __forceinline__ int64 this_row() { return int64(blockIdx.x) * kThreads + threadIdx.x; }

// `classes` of `all_classes`, from `first_class` on; softcap 0 is none.  means: of w_c (lse - x_c) over the classes, null
// without smoothing; total: their summed weights, null if each weighs 1.
extern "C" __global__ void __launch_bounds__(kThreads)
part_columns(const Input* logits, int64 row_stride, int64 class_stride, int64 classes, const Label* labels,
             int64 label_stride, int64 rows, int64 first_class, int64 all_classes, int64 ignore_index, double scale,
             double softcap, const Compute* lses, const Compute* lse_lows, const Compute* means, const Compute* total,
             Compute* columns) {
    const int64 row = this_row();
    if (row >= rows) return;
    const RowLabel target(labels, row, label_stride, all_classes, ignore_index);
    const int64 own = target.value - first_class;
    Compute logit = -Compute(0);
    if (target.known && own >= 0 && own < classes) {
        const Compute x = Compute(widen(logits[row * row_stride + own * class_stride])) * Compute(scale);
        logit = (softcap == 0 ? x : Compute(softcap) * tanh(x / Compute(softcap))) + Compute(0);  // -0 becomes 0
    }
    const Compute lse = lses[row];
    columns[row] = lse;
    columns[rows + row] = lse_lows[row];
    columns[2 * rows + row] = logit;
    if (means == nullptr) return;
    // A class of -inf is infinitely far unless it weighs nothing.
    const Compute mass = total == nullptr ? Compute(classes) : *total;
    const Compute far = mass == Compute(0) ? Compute(0) : infinity<Compute>();
    columns[3 * rows + row] = lse == -infinity<Compute>() ? far : means[row] * Compute(classes);
    columns[4 * rows + row] = mass;
}

// A number of everybody's row: everybody is (processes, columns, rows).
struct Everybody {
    const Compute* at;
    int64 columns, rows;
    __device__ __forceinline__ Compute operator()(int64 process, int column) const {
        return at[(process * columns + column) * rows];
    }
};

extern "C" __global__ void __launch_bounds__(kThreads)
whole_rows(const Compute* everybody, int64 processes, int64 columns, const Label* labels, int64 label_stride, int64 rows,
           int64 all_classes, int64 ignore_index, const Compute* weight, double smoothing, double reported_z,
           Compute* losses, Compute* lses, Compute* lse_lows) {
    const int64 row = this_row();
    if (row >= rows) return;
    const Everybody of{everybody + row, columns, rows};
    const auto part_at = [&](int64 r) { return LogSumExp<Compute>{of(r, 0), of(r, 1)}; };
    const LogSumExp<Compute> whole = merge_parts<Compute>(processes, part_at);
    lses[row] = whole.lse, lse_lows[row] = whole.low;

    const RowLabel target(labels, row, label_stride, all_classes, ignore_index);
    if (!target.kept) {
        losses[row] = 0;
        return;
    }
    Compute target_logit = 0;
    int owners = 0;
    for (int64 r = 0; r < processes; ++r) {
        const Compute logit = of(r, 2);
        owners += logit != Compute(0) || Compute(1) / logit > Compute(0);
        target_logit += logit;
    }
    if (!target.known || owners > 1 || !is_finite(whole.lse)) {
        losses[row] = not_a_number<Compute>();
        return;
    }
    const Compute mass = Compute(1 - smoothing) * (weight == nullptr ? Compute(1) : weight[target.value]);
    Compute loss = mass == Compute(0) ? Compute(0) : mass * ((whole.lse - target_logit) + whole.low);
    if (smoothing != 0) {
        Compute sum = 0;
        for (int64 r = 0; r < processes; ++r) {
            const Compute lse = of(r, 0), part = of(r, 3), weights = of(r, 4);
            const bool as_it_is = lse == -infinity<Compute>() || weights == Compute(0);
            sum += as_it_is ? part : part + weights * ((whole.lse - lse) + (whole.low - of(r, 1)));
        }
        loss += Compute(smoothing / all_classes) * sum;
    }
    losses[row] = loss + Compute(reported_z) * whole.lse * whole.lse;
}
