// softmax, log_softmax and logsumexp of rows that fit in the registers of a group of lanes, a block or a cluster.
//
// A row is read once.  Each warp takes the maximum of its own elements, exponentiates once against it and sums; the
// warps' states are merged, and for softmax the kept exponentials are multiplied by exp(m_warp - m) / s.
// Memory is what limits the speed, so words travel to shared memory by asynchronous copies, which keep more bytes in
// flight than registers can; a thread reads back only what it copied itself, so no barrier stands between.
#include "../../_cuda/rows.cuh"
#include "../../_cuda/summary.cuh"

using namespace online_softmax;

enum Operation { kSoftmax, kLogSoftmax, kLogSumExp };
constexpr Operation kOperation = Operation(OPERATION);

using ExpOf = Either<sizeof(Input) == 2 && sizeof(Output) == 2, FastExp, Exp>::type;
using States = Exchange<Compute, 2>;

extern __shared__ uint4 words[];

// log s of a row whose maximum holds nearly all of the sum: s = 1 + rest rounds the rest away, so the sum is taken
// again without one maximal element.
__device__ Compute precise_log_sum(const Compute* values, Compute m, States* exchange) {
    Compute rest = 0, maxima = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
        if (values[i] == m) maxima += 1;
        else rest += Exp()(values[i] - m);
    }
    rest = lane_sum<kLanes>(rest);
    maxima = lane_sum<kLanes>(maxima);
    if constexpr (!kWithinWarp) {
        const Compute record[2] = {rest, maxima};
        const Compute* records = exchange->swap(record);
        rest = maxima = 0;
        for_my_records<Compute, 2>(records, [&](const Compute* r) { rest += r[0], maxima += r[1]; });
        rest = lane_sum<32>(rest);
        maxima = lane_sum<32>(maxima);
    }
    return log1p((maxima - 1) + rest);
}

__device__ __forceinline__ Compute log_sum_exp(const Compute* values, State<Compute> row, States* exchange) {
    // Only where the result is small do the lost terms show.
    constexpr bool may_show = sizeof(Input) > 2;
    if (may_show && row.s < Compute(1.125) && fabs(row.m) < Compute(0.125))
        return row.m + precise_log_sum(values, row.m, exchange);
    return row.m + log(row.s);
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_rows(const Input* x, Output* y, int64 rows, int length, int64 x_inner, int64 x_outer_stride,
             int64 x_inner_stride, int64 y_stride) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const int thread = threadIdx.x % kGroup, group = threadIdx.x / kGroup;
    const int rank = kCluster > 1 ? cluster_rank() : 0;
    const int64 stride = int64(gridDim.x) / kCluster * kRowsPerBlock;
    int64 row = int64(blockIdx.x) / kCluster * kRowsPerBlock + group;

    Input* const slots = reinterpret_cast<Input*>(words + group * kGroup * kSlots);
    __shared__ States::Shared shared;

    // The row at hand, and while its numbers are in registers the next one.  A group beyond the last row goes on with an
    // empty one: its warp's shuffles need it.
    const Input* source;
    Part part;
    const auto turn_to = [&](int64 r) {
        source = x + (r < rows ? x_map(r) : 0);
        part = share_of_row(source, r < rows ? length : 0, rank);
        if constexpr (!kWithinWarp) {
            copy_words_async<Input, kSlots, kGroup>(slots, source, part, thread);
            copy_async_commit();
        }
    };
    turn_to(row);
    States exchange(shared, rank);

    do {
        const bool active = row < rows;
        const Part current = part;
        Compute values[kValues];
        if constexpr (kWithinWarp) {
            load_words<Input, kSlots, kGroup>(values, source + part.column, current, thread, -infinity<Compute>());
        } else {
            copy_async_wait<0>();
            load_words<Input, kSlots, kGroup>(values, slots, current, thread, -infinity<Compute>());
        }
        Compute m = maximum_of<kValues>(values);
        if constexpr (kPersistent) turn_to(row + stride);  // into the words just read
        m = lane_maximum<kLanes>(m);
        Compute s = exponential_sum<kOperation == kSoftmax, kValues>(values, m, ExpOf());
        s = lane_sum<kLanes>(s);

        State<Compute> total = state_of(m, s);
        if constexpr (!kWithinWarp) {
            const Compute record[2] = {total.m, total.s};
            total = merge_records<Compute, 2>(exchange.swap(record), ExpOf());
        }
        // A row with +inf has no softmax; one with NaN, or all -inf, becomes NaN by itself.
        const bool undefined = total.m == infinity<Compute>();
        if constexpr (kOperation == kSoftmax) {
            const Compute scale = undefined ? not_a_number<Compute>() : rescale_factor(m, total.m, ExpOf()) * reciprocal(total.s);
            store_words<Output, kSlots, kElements, kGroup, Compute>(y + row * y_stride, current, thread,
                                                                    [&](int i, int) { return values[i] * scale; });
        } else if constexpr (kOperation == kLogSoftmax) {
            const Compute log_s = undefined ? not_a_number<Compute>() : log(total.s);
            store_words<Output, kSlots, kElements, kGroup, Compute>(y + row * y_stride, current, thread,
                                                                    [&](int i, int) { return values[i] - total.m - log_s; });
        } else {
            const Compute lse = log_sum_exp(values, total, &exchange);
            if (active && rank == 0 && thread == 0) y[row] = Narrow<Output>::one(lse);
        }
        row += stride;
    } while (kPersistent && row < rows);
}
