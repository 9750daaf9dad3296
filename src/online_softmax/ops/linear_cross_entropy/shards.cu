// memory="least" between its products, one thread a row: which chunk shows a row its class, the chunks' states merged
// into the row's, the batch's loss, and what each chunk's gradient is asked to add.  For class indices without weights
// or smoothing.  shard.py, merged.py and pulls.py say the same in array operations, each of them a launch.
#include "../../_cuda/functions.cuh"

using namespace online_softmax;

using Compute = COMPUTE;
using Label = LABEL;
constexpr int kThreads = 128, kThreadsOfSum = 1024;
constexpr int64 kNotHere = -1;

__device__ __forceinline__ float exponential_less_one(float x) { return expm1f(x); }
__device__ __forceinline__ double exponential_less_one(double x) { return expm1(x); }
__device__ __forceinline__ float log_of_one_more(float x) { return log1pf(x); }
__device__ __forceinline__ double log_of_one_more(double x) { return log1p(x); }

template <class A> __device__ constexpr A largest();
template <> __device__ constexpr float largest<float>() { return 3.40282347e38f; }
template <> __device__ constexpr double largest<double>() { return 1.7976931348623157e308; }

// A row's label: ignored, or known and in chunk `own`, or none at all.
struct Target {
    int64 label;
    bool ignored, known;

    __device__ __forceinline__ Target(const Label* labels, int64 row, int64 stride, int64 classes, int64 ignore_index)
        : label(int64(labels[row * stride])), ignored(label == ignore_index),
          known(!ignored && label >= 0 && label < classes) {}
    __device__ __forceinline__ int64 own(int64 step) const { return known ? label / step : kNotHere; }
};

__device__ __forceinline__ int64 this_row() { return int64(blockIdx.x) * kThreads + threadIdx.x; }

// Tables are (chunks, rows); chunk i holds the classes from i * step on.
extern "C" __global__ void __launch_bounds__(kThreads)
place_targets(const Label* labels, int64 stride, int64 rows, int64 classes, int64 ignore_index, int64 step,
              int64 chunks, int64* local) {
    const int64 row = this_row();
    if (row >= rows) return;
    const Target target(labels, row, stride, classes, ignore_index);
    const int64 own = target.own(step);
    for (int64 i = 0; i < chunks; ++i) local[i * rows + row] = i == own ? target.label - i * step : kNotHere;
}

extern "C" __global__ void __launch_bounds__(kThreads)
merge_shards(const Label* labels, int64 stride, int64 rows, int64 classes, int64 ignore_index, int64 step,
             int64 chunks, const Compute* losses, const Compute* lses, const Compute* lse_lows, double reported_z,
             Compute* loss_out, Compute* lse_out, Compute* lse_low_out) {
    const int64 row = this_row();
    if (row >= rows) return;
    Compute m = lses[row];
    int64 first = 0;
    for (int64 i = 1; i < chunks; ++i) {
        const Compute lse = lses[i * rows + row];
        if (lse > m) first = i;
        m = maximum(m, lse);
    }
    // The largest part counts as 1 and what rounding took from it, so that log1p keeps sums that hardly exceed it.
    Compute rest = exponential_less_one(lse_lows[first * rows + row]);
    for (int64 i = 0; i < chunks; ++i) {
        const Compute lse = lses[i * rows + row], low = lse_lows[i * rows + row];
        if (i != first) rest += Exp()((lse - m) + low);
    }
    const Compute log_s = log_of_one_more(rest);
    const bool finite = is_finite(m);
    const Compute lse = finite ? m + log_s : m, low = finite ? (m - lse) + log_s : Compute(0);
    lse_out[row] = lse;
    lse_low_out[row] = low;

    const Target target(labels, row, stride, classes, ignore_index);
    Compute loss = 0;
    if (!target.ignored) {
        loss = not_a_number<Compute>();
        if (target.known && is_finite(lse)) {
            // -log p of the class is -log p within its chunk, and how much the whole outweighs that.
            const int64 at = target.own(step) * rows + row;
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
        if (Target(labels, row, stride, classes, ignore_index).ignored) continue;
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
    const Target target(labels, row, stride, classes, ignore_index);
    const Compute incoming = grad_loss[row * grad_loss_stride], lse = lses[row];
    const Compute of_lse = grad_lse ? grad_lse[row * grad_lse_stride] : Compute(0);
    Compute share = 0, pull = 0;
    if (!target.ignored) {
        share = incoming / divisors[0];
        pull = share;
        if (z_loss != 0) pull += Compute(2 * z_loss) * lse * (incoming / divisors[1]);
        if (!target.known) pull = not_a_number<Compute>();
    }
    pull += of_lse;
    // With a log-sum-exp this large every p is 0: rows that count for nothing stay 0, whatever they hold.
    lse_out[row] = target.ignored && of_lse == Compute(0) ? largest<Compute>() : lse;
    share_out[row] = share;
    const int64 own = target.own(step);
    for (int64 i = 0; i < chunks; ++i) by_lse[i * rows + row] = i == own ? pull - share : pull;
}
