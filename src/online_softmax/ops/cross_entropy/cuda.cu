// Cross-entropy of rows that fit in the registers of a group of lanes, a block or a cluster.  It takes what staged.cu does
// not: the shortest rows, targets that are probabilities, aux, and fp64.
#include "row.cuh"

using namespace online_softmax;

extern __shared__ uint4 words[];

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
cross_entropy_rows(const Input* logits, Input* gradient, int64 rows, int classes, int64 logits_stride,
                   int64 gradient_stride, const Target* targets, int64 target_stride, const Compute* weight,
                   int64 ignore_index, double scale, double softcap, double smoothing, double z_loss, double reported_z,
                   const Compute* divisors, Compute* losses, Compute* lses, Compute* lse_lows, Compute* z_losses,
                   int64* predictions, Compute* entropies) {
    let_next_launch_begin();  // the sum of losses, which waits for this one to end
    const Batch batch{logits, gradient, rows, classes, logits_stride, gradient_stride, targets, target_stride, weight,
                      ignore_index, scale, softcap, smoothing, z_loss, reported_z};
    const RowResults<Compute> results{Compute(z_loss), Compute(reported_z), losses,     lses,
                                      lse_lows,        z_losses,            predictions, entropies};
    Shares shares;
    take_row(
        batch, words,
        [&] {
            wait_for_previous_launch();
            shares = {over(divisors[0]), over(divisors[1])};
        },
        [&](int64 row, bool, const RowLoss<Compute>& result, const RowSums<Compute>&, Compute label_logit) {
            results.write(row, result, label_logit);
        },
        [&] { return shares; });
}
