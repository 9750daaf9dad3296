// Cross-entropy of rows longer than a cluster can keep: split over any number of blocks, read twice.  Three launches:
// what each piece sums, the row's loss and gradient factors from its pieces in a fixed order, then the gradient.
#include "../../_cuda/pieces.cuh"
#include "row_loss.cuh"

using namespace online_softmax;

using Target = TARGET;
using Found = Exchange<Compute, kFound>;
using Weight = WeightInMemory<Compute>;
using Mass = ClassMass<Compute, Weight, Target>;
static_assert(kCluster == 1 && !kWithinWarp, "pieces are blocks");

// What the last launch needs to know of a row.
struct Factors {
    Compute m, of_probability;  // gradient = exp(x - m) * of_probability
    Compute of_mass, of_label;  //   - of_mass * w q' - (of_label on the label's class),  all times the logit's slope
    __device__ bool silent() const { return of_probability == 0 && of_mass == 0 && of_label == 0; }
};

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
loss_pieces_sum(const Input* logits, int classes, int pieces, int64 logits_stride, const Target* targets,
                int64 target_stride, const Compute* weight, double scale, double softcap, double smoothing,
                Compute* records) {
    const RowMap map{0x7fffffffffffffff, 0, logits_stride};
    const Piece piece(logits, map, classes, pieces);
    __shared__ Found::Shared shared;
    Found exchange(shared);
    const Weight weight_of{weight};
    const Mass mass_of{weight_of, targets + piece.row * target_stride, Compute(1 - smoothing), Compute(smoothing / classes)};
    const Logit<Compute> logit{Compute(scale), Compute(softcap), Compute(1 / softcap)};
    Part part = piece.part;
    const Input* source = logits + map(piece.row) + piece.offset + part.column;
    part.column += int(piece.offset);  // from here on columns are the whole row's

    Compute values[kValues], slope;
    load_words<Input, kSlots, kThreads>(values, source, part, threadIdx.x, -infinity<Compute>(),
                                               [&](int, Compute x) { return logit(x, slope); });
    const Compute m = lane_maximum<32>(maximum_of<kValues>(values));
    RowSums<Compute> sums = sums_of<false, Exp>(values, m, part, threadIdx.x, mass_of);
    sums.merge(exchange.swap(sums.record().at));
    if (threadIdx.x == 0) {
        const auto record = sums.record();
#pragma unroll
        for (int r = 0; r < kFound; ++r) records[int64(blockIdx.x) * kFound + r] = record.at[r];
    }
}

// One block a row.
extern "C" __global__ void __launch_bounds__(kThreads)
loss_pieces_merge(const Compute* records, int pieces, const Input* logits, int classes, int64 logits_stride,
                  const Target* targets, int64 target_stride, const Compute* weight, int64 ignore_index, double scale,
                  double softcap, double smoothing, double z_loss, double reported_z, const Compute* divisors,
                  Compute* losses, Compute* lses, Compute* lse_lows, Compute* z_losses, int64* predictions,
                  Compute* entropies, Factors* factors) {
    const int64 row = blockIdx.x;
    __shared__ Found::Shared shared;
    Found exchange(shared);
    RowSums<Compute> total;
    for (int piece = threadIdx.x; piece < pieces; piece += kThreads) total.absorb(records + (row * pieces + piece) * kFound);
    total.rebase(lane_maximum<32>(total.m));
    total.over_lanes();
    total.merge(exchange.swap(total.record().at));
    if (threadIdx.x != 0) return;

    bool kept = true, known = true;
    Compute label_weight = 1, label_logit = 0, slope;
    const Logit<Compute> logit{Compute(scale), Compute(softcap), Compute(1 / softcap)};
    if constexpr (!kProbabilities) {
        const int64 label = label_of(targets[row * target_stride]);
        kept = label != ignore_index, known = label >= 0 && label < classes;
        if (kept && known) {
            if (kWeighted) label_weight = weight[label];
            label_logit = logit(Compute(widen(logits[row * logits_stride + label])), slope);
        }
    }
    const Compute spread = Compute(smoothing / classes), kept_mass = Compute(1 - smoothing);
    const RowLoss<Compute> result(total, kept, known, label_weight, kept_mass, spread);
    RowResults<Compute>{Compute(z_loss), Compute(reported_z), losses, lses, lse_lows, z_losses, predictions, entropies}
        .write(row, result, label_logit);
    if constexpr (kGradient) {
        const Compute on_class = kept ? over(divisors[0]) : Compute(0);
        const Compute pull = result.pull(on_class, over(divisors[1]) * Compute(2 * z_loss));
        const Compute chain = kScaled ? logit.scale : Compute(1);
        factors[row] = {total.m == -infinity<Compute>() ? Compute(0) : total.m,
                        !kept ? Compute(0) : result.probability_factor(total.m) * pull * chain,
                        on_class * chain * (kProbabilities ? Compute(1) : spread),
                        kProbabilities ? Compute(0) : on_class * chain * label_weight * kept_mass};
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
loss_pieces_write(const Input* logits, Input* gradient, int classes, int pieces, int64 logits_stride,
                  int64 gradient_stride, const Target* targets, int64 target_stride, const Compute* weight,
                  double scale, double softcap, double smoothing, const Factors* factors) {
    const RowMap map{0x7fffffffffffffff, 0, logits_stride};
    const Piece piece(logits, map, classes, pieces);
    const Factors row = factors[piece.row];
    const Target* const target = targets + piece.row * target_stride;
    const Weight weight_of{weight};
    const Mass mass_of{weight_of, target, Compute(1 - smoothing), Compute(smoothing / classes)};
    const Logit<Compute> logit{Compute(scale), Compute(softcap), Compute(1 / softcap)};
    const int64 label = label_of(*target);
    Part part = piece.part;
    const Input* source = logits + map(piece.row) + piece.offset + part.column;
    part.column += int(piece.offset);

    Compute values[kValues], slopes[kSoftcap ? kValues : 1];
    load_words<Input, kSlots, kThreads>(values, source, part, threadIdx.x, -infinity<Compute>(),
                                               [&](int i, Compute x) { return logit(x, slopes[kSoftcap ? i : 0]); });
    store_words<Input, kSlots, kElements, kThreads, Compute>(
        gradient + piece.row * gradient_stride, part, threadIdx.x, [&](int i, int position) {
            if (row.silent()) return Compute(0);  // whatever an ignored row holds
            const int column = position + part.column;
            Compute g = row.of_probability == Compute(0) ? Compute(0) : Exp()(values[i] - row.m) * row.of_probability;
            if constexpr (kSpread) {
                const bool there = !(kProbabilities || kWeighted) || part.holds(position);
                if (there) g -= row.of_mass * mass_of(column);
            }
            if (column == label) g -= row.of_label;
            return kSoftcap ? g * slopes[kSoftcap ? i : 0] : g;
        });
}
