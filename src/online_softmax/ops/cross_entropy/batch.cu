// Cross-entropy of a batch that one block takes whole: it takes the rows, counts their labels and sums their losses.  One
// launch, where three take longer than all that is done in them.
#include "row.cuh"
#include "totals.cuh"

using namespace online_softmax;

constexpr int kHeadBytes = 16;

static_assert(kWithinWarp && !kProbabilities && !kAux && kRowsPerBlock <= kThreads, "short rows with labels");

extern "C" __global__ void __launch_bounds__(kThreads)
cross_entropy_batch(const Input* logits, Input* gradient, int64 rows, int classes, int64 logits_stride,
                    const Target* targets, int64 target_stride, const Compute* weight, int64 ignore_index, double scale,
                    double softcap, double smoothing, double z_loss, double divisor, Compute* packed, Compute* loss) {
    __shared__ Pair of_row[kRowsPerBlock], counts[kThreads / 32], sums[kThreads / 32];
    // `packed`: as options.py has it.  z-loss is added with the sum.
    Compute* const losses = packed + kHeadBytes / sizeof(Compute);
    Compute* const lses = losses + rows;
    Compute* const lse_lows = lses + rows;
    const Batch batch{logits, gradient, rows, classes, logits_stride, classes, targets, target_stride, weight,
                      ignore_index, scale, softcap, smoothing, z_loss, 0};
    // Beside its share of a row, each thread counts the label of one.
    const bool counting = threadIdx.x < rows;
    const int64 label = counting ? int64(targets[threadIdx.x * target_stride]) : ignore_index;
    const Pair count = divisor == 0 ? counted(label, weight, classes, ignore_index) : Pair{0, 0};
    take_row(
        batch, nullptr, [] {},
        [&](int64 row, bool kept, const RowLoss<Compute>& result, const RowSums<Compute>&, Compute label_logit) {
            const Compute lse = result.lse(), of_this = result.loss(label_logit, Compute(0));
            of_row[row] = {of_this, kZLoss && kept ? double(lse) * double(lse) : 0};
            losses[row] = of_this;
            lses[row] = lse;
            lse_lows[row] = result.lse_low();
        },
        [&]() -> Shares {
            const int warps = int(rows + 31) / 32;
            const Pair labels = block_sum(count, counts, warps);  // all rows' losses are there when it returns
            const Pair sum = block_sum(counting ? of_row[threadIdx.x] : Pair{0, 0}, sums, warps);
            const bool given = divisor != 0;
            const Compute by_class = given ? Compute(divisor) : divisor_of(Compute(labels.first));
            const Compute by_row = given ? Compute(divisor) : divisor_of(Compute(labels.second));
            if (threadIdx.x == 0) {
                packed[0] = by_class, packed[1] = by_row;
                *loss = reduced(sum, by_class, by_row, z_loss);
            }
            return {over(by_class), over(by_row)};
        });
}
