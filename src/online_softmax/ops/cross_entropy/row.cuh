// One row of cross-entropy in the registers of a group of lanes, a block or a cluster: the loss alone, or the loss and its
// gradient from one read of the logits.  softmax/cuda.cu tells how a row is summarised.
#pragma once
#include "../../_cuda/rows.cuh"
#include "../../_cuda/summary.cuh"
#include "row_loss.cuh"

namespace online_softmax {

using Target = TARGET;
using Found = Exchange<Compute, kFound>;

// The rows, and the options' numbers.
struct Batch {
    const Input* logits;
    Input* gradient;
    int64 rows;
    int classes;
    int64 logits_stride, gradient_stride;
    const Target* targets;
    int64 target_stride;
    const Compute* weight;
    int64 ignore_index;
    double scale, softcap, smoothing, z_loss, reported_z;
};

// 1 over what the class term and the z term are divided by.
struct Shares { Compute per_class, per_row; };

// Takes the row that this thread's group stands for.  `words`: dynamic shared memory, for groups larger than a warp.
// begin() comes before anything that a launch in front may have written is read, and before anything is written;
// report(row, kept, row loss, its sums, logit of the label) is called by one thread of the row;
// shares() then by all threads of the block.
template <class Begin, class Report, class SharesOf>
__device__ __forceinline__ void take_row(const Batch& batch, uint4* words, Begin begin, Report report, SharesOf shares) {
    const auto& [logits, gradient, rows, classes, logits_stride, gradient_stride, targets, target_stride, weight,
                 ignore_index, scale, softcap, smoothing, z_loss, reported_z] = batch;
    const int thread = threadIdx.x % kGroup, group = threadIdx.x / kGroup;
    const int rank = kCluster > 1 ? cluster_rank() : 0;
    const int64 row = int64(blockIdx.x) / kCluster * kRowsPerBlock + group;
    const bool active = row < rows;  // a group beyond the last row goes on with an empty one: its warp's shuffles need it
    const Logit<Compute> logit{Compute(scale), Compute(softcap), Compute(1 / softcap)};
    const Compute spread = Compute(smoothing / classes), kept_mass = Compute(1 - smoothing);

    Input* const slots = reinterpret_cast<Input*>(words + group * kGroup * kSlots);
    __shared__ Found::Shared shared;
    const Input* const source = logits + (active ? row * logits_stride : 0);
    const Part part = share_of_row(source, active ? classes : 0, rank);
    const Target* const target = targets + (active ? row * target_stride : 0);
    int64 label = -1;
    if constexpr (!kProbabilities) label = active ? label_of(*target) : ignore_index;
    if constexpr (!kWithinWarp) {
        copy_words_async<Input, kSlots, kGroup>(slots, source, part, thread);
        copy_async_commit();
    }
    begin();
    Found exchange(shared);
    const WeightInMemory<Compute> weight_of{weight};

    // The class of an index target, and the thread that holds its logit.
    bool kept = true, known = true, owner = false;
    Compute label_weight = 1;
    if constexpr (!kProbabilities) {
        kept = label != ignore_index;
        known = label >= 0 && label < classes;
        if (kept && known) {
            const int position = int(label) - part.column;
            owner = part.holds(position) && position / kElements % kGroup == thread;
            if (kWeighted) label_weight = weight[label];
        }
    }
    // The mass w_c q'_c on a column, except for the smoothing's constant factor eps / C of index targets.
    const ClassMass<Compute, WeightInMemory<Compute>, Target> mass_of{weight_of, target, kept_mass, spread};

    Compute values[kValues], slopes[kSoftcap ? kValues : 1], label_logit = 0, label_slope = 1;
    const auto adjust = [&](int i, Compute x) { return logit(x, slopes[kSoftcap ? i : 0]); };
    if constexpr (kWithinWarp) {
        load_words<Input, kSlots, kGroup>(values, source + part.column, part, thread, -infinity<Compute>(),
                                                 adjust);
        if (owner) label_logit = logit(Compute(widen(source[label])), label_slope);
    } else {
        copy_async_wait<0>();
        load_words<Input, kSlots, kGroup>(values, slots, part, thread, -infinity<Compute>(), adjust);
        if (owner) label_logit = logit(Compute(widen(slots[int(label) - part.column])), label_slope);
    }
    Compute m = maximum_of<kValues>(values);
    m = lane_maximum<kLanes>(m);

    const RowSums<Compute> sums = sums_of<kGradient, ExpOf>(values, m, part, thread, mass_of);
    RowSums<Compute> total = sums;
    if constexpr (!kWithinWarp) total.merge(exchange.swap(sums.record().at));

    const RowLoss<Compute> result(total, kept, known, label_weight, kept_mass, spread);
    if (active && (kept && known && !kProbabilities ? owner : rank == 0 && thread == 0))
        report(row, kept, result, total, label_logit);
    const Shares share = shares();
    if constexpr (kGradient) {
        const Compute on_class = kept ? share.per_class : Compute(0);
        const Compute pull = result.pull(on_class, share.per_row * Compute(2 * z_loss));
        const Compute chain = kScaled ? logit.scale : Compute(1);
        const Compute factor = result.probability_factor(sums.m) * pull * chain;
        const Compute push = on_class * chain * (kProbabilities ? Compute(1) : spread);
        Input* const target_row = gradient + row * gradient_stride;
        // Worked out again: while the registers held the row, there was no room for it.
        const Part part = share_of_row(hidden(logits + (active ? row * logits_stride : 0)), active ? classes : 0, rank);
        if (!kept) {  // 0, whatever the row holds
            for (int at = thread * kElements; at < part.high; at += kGroup * kElements) {
                for (int k = 0; k < kElements; ++k)
                    if (part.holds(at + k)) target_row[part.column + at + k] = Narrow<Input>::one(Compute(0));
            }
        } else {
            store_words<Input, kSlots, kElements, kGroup, Compute>(
                target_row, part, thread, [&](int i, int position) {
                    Compute g = values[i] * factor;
                    if constexpr (kSpread) {
                        const bool there = !(kProbabilities || kWeighted) || part.holds(position);
                        if (there) g -= push * mass_of(position + part.column);
                    }
                    return kSoftcap ? g * slopes[kSoftcap ? i : 0] : g;
                });
        }
        if (owner) {  // the label's own class, over what was just written: p - 1 rounded once
            const Compute p = result.probability(label_logit);
            const Compute mass = label_weight * (kept_mass + spread);
            target_row[label] = Narrow<Input>::one((p * pull - on_class * mass) * chain * label_slope);
        }
    }
}

}  // namespace online_softmax
