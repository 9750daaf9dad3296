// memory="least" between its products, one thread a row: which chunk shows a row its class, the chunks' states merged
// into the row's, the batch's loss, and what each chunk's gradient is asked to add.  For class indices without weights
// or smoothing.  shard.py, merged.py and pulls.py say the same in array operations, each of them a launch.
#include "../cross_entropy/parts.cuh"

using namespace online_softmax;

using Compute = COMPUTE;
using Label = LABEL;
constexpr int kThreads = 128, kThreadsOfSum = 1024;
constexpr int64 kNotHere = -1;

template <class A> __device__ constexpr A largest();
template <> __device__ constexpr float largest<float>() { return 3.40282347e38f; }
template <> __device__ constexpr double largest<double>() { return 1.7976931348623157e308; }

// The chunk that has the label's class, if there is one.
__device__ __forceinline__ int64 own_chunk(const RowLabel& label, int64 step) {
    return label.known ? label.value / step : kNotHere;
}

__device__ __forceinline__ int64 this_row() { return int64(blockIdx.x) * kThreads + threadIdx.x; }

// Tables are (chunks, rows); chunk i holds the classes from i * step on.
extern "C" __global__ void __launch_bounds__(kThreads)
place_targets(const Label* labels, int64 stride, int64 rows, int64 classes, int64 ignore_index, int64 step,
              int64 chunks, int64* local) {
    const int64 row = this_row();
    if (row >= rows) return;
    const RowLabel target(labels, row, stride, classes, ignore_index);
    const int64 own = own_chunk(target, step);
    for (int64 i = 0; i < chunks; ++i) local[i * rows + row] = i == own ? target.value - i * step : kNotHere;
}

extern "C" __global__ void __launch_bounds__(kThreads)
merge_shards(const Label* labels, int64 stride, int64 rows, int64 classes, int64 ignore_index, int64 step,
             int64 chunks, const Compute* losses, const Compute* lses, const Compute* lse_lows, double reported_z,
             Compute* loss_out, Compute* lse_out, Compute* lse_low_out) {
    const int64 row = this_row();
    if (row >= rows) return;
    const auto part_at = [&](int64 i) { return LogSumExp<Compute>{lses[i * rows + row], lse_lows[i * rows + row]}; };
    const auto [lse, low] = merge_parts<Compute>(chunks, part_at);
    lse_out[row] = lse;
    lse_low_out[row] = low;

    const RowLabel target(labels, row, stride, classes, ignore_index);
    Compute loss = 0;
    if (target.kept) {
        loss = not_a_number<Compute>();
        if (target.known && is_finite(lse)) {
            // -log p of the class is -log p within its chunk, and how much the whole outweighs that.
            const int64 at = own_chunk(target, step) * rows + row;
            const Compute part = lses[at];
            loss = part == -infinity<Compute>() ? infinity<Compute>()
                                                : losses[at] + ((lse - part) + (low - lse_lows[at]));
            loss += Compute(reported_z) * lse * lse;
        }
    }
    loss_out[row] = loss;
}

struct Sums { double losses, squares, kept; };

// The sums of all threads of the block, in its first warp.
__device__ Sums block_sum(Sums mine) {
    constexpr int kWarps = (kThreadsOfSum + 31) / 32;
    __shared__ Sums of_warp[kWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    mine = {lane_sum<32>(mine.losses), lane_sum<32>(mine.squares), lane_sum<32>(mine.kept)};
    if (lane == 0) of_warp[warp] = mine;
    __syncthreads();
    mine = lane < kWarps ? of_warp[lane] : Sums{0, 0, 0};
    return {lane_sum<32>(mine.losses), lane_sum<32>(mine.squares), lane_sum<32>(mine.kept)};
}

// By one block: both divisors, `items` or, if that is null, `counted` ? the number of kept rows : 1; and the sum of losses
// and of z_loss times the kept rows' lse^2, over them.
extern "C" __global__ void __launch_bounds__(kThreadsOfSum)
sum_rows(const Label* labels, int64 stride, int64 rows, int64 classes, int64 ignore_index, int64 step, int64 chunks,
         const Compute* losses, const Compute* lses, double z_loss, const Compute* items, int64 counted,
         Compute* divisors, Compute* loss) {
    Sums sums{0, 0, 0};
    for (int64 row = threadIdx.x; row < rows; row += kThreadsOfSum) {
        if (!RowLabel(labels, row, stride, classes, ignore_index).kept) continue;
        sums.losses += double(losses[row]), sums.squares += double(lses[row]) * double(lses[row]), sums.kept += 1;
    }
    sums = block_sum(sums);
    if (threadIdx.x != 0) return;
    Compute divisor = items ? *items : Compute(counted ? sums.kept : 1);
    if (divisor == Compute(0)) divisor = not_a_number<Compute>();  // see totals.cu
    divisors[0] = divisors[1] = divisor;
    const double sum = z_loss == 0 ? sums.losses : sums.losses + z_loss * sums.squares;
    *loss = Compute(sum / double(divisor));
}

// The kernel adds p times the mass that a chunk is shown; what pulls towards all other mass comes in by way of lse.
extern "C" __global__ void __launch_bounds__(kThreads)
pull_shards(const Label* labels, int64 stride, int64 rows, int64 classes, int64 ignore_index, int64 step, int64 chunks,
            const Compute* lses, const Compute* divisors, double z_loss, const Compute* grad_loss,
            int64 grad_loss_stride, const Compute* grad_lse, int64 grad_lse_stride, Compute* lse_out, Compute* share_out,
            Compute* by_lse) {
    const int64 row = this_row();
    if (row >= rows) return;
    const RowLabel target(labels, row, stride, classes, ignore_index);
    const Compute incoming = grad_loss[row * grad_loss_stride], lse = lses[row];
    const Compute of_lse = grad_lse ? grad_lse[row * grad_lse_stride] : Compute(0);
    Compute share = 0, pull = 0;
    if (target.kept) {
        share = incoming / divisors[0];
        pull = share;
        if (z_loss != 0) pull += Compute(2 * z_loss) * lse * (incoming / divisors[1]);
        if (!target.known) pull = not_a_number<Compute>();
    }
    pull += of_lse;
    // With a log-sum-exp this large every p is 0: rows that count for nothing stay 0, whatever they hold.
    lse_out[row] = !target.kept && of_lse == Compute(0) ? largest<Compute>() : lse;
    share_out[row] = share;
    const int64 own = own_chunk(target, step);
    for (int64 i = 0; i < chunks; ++i) by_lse[i * rows + row] = i == own ? pull - share : pull;
}
