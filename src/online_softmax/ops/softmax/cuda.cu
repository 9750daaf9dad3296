// softmax, log_softmax and logsumexp of rows that fit in the registers of a group of lanes, a block or a cluster.
//
// A row is read once.  Each warp takes the maximum of its own elements, exponentiates once against it and sums; the
// warps' states are merged, and for softmax of 16 bits the kept exponentials are multiplied by exp(m_warp - m) / s.
// Wider results are exponentiated again, against the row's maximum: two factors would have both roundings.
// Memory is what limits the speed, so words travel to shared memory by asynchronous copies, which keep more bytes in
// flight than registers can; a thread reads back only what it copied itself, so no barrier stands between.
#include "../../_cuda/rows.cuh"
#include "../../_cuda/summary.cuh"

using namespace online_softmax;

enum Operation { kSoftmax, kLogSoftmax, kLogSumExp };
constexpr Operation kOperation = Operation(OPERATION);

using ExpOf = Either<sizeof(Input) == 2 && sizeof(Output) == 2, FastExp, Exp>::type;
using States = Exchange<Compute, 2>;
constexpr bool kKeep = kOperation == kSoftmax && (kWithinWarp || sizeof(Input) == 2);  // the exponentials

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

// log s, with the terms that rounding s lost where they may show.
__device__ __forceinline__ Compute log_sum(const Compute* values, State<Compute> row, bool shows, States* exchange) {
    if constexpr (sizeof(Input) > 2) {
        const bool lost = shows && row.s < Compute(1.125);
        // Rows that share a warp go together: its shuffles need all lanes.
        if (kLanes < 32 ? __any_sync(0xffffffffu, lost) : lost) {
            const Compute precise = precise_log_sum(values, row.m, exchange);
            if (lost) return precise;
        }
    }
    return log(row.s);
}

// Where this thread's group stands.
struct Place {
    int64 row;
    bool active;  // a group beyond the last row goes on with an empty one: its warp's shuffles need it
    const Input* source;
    int rank;  // of the block in its cluster
    Part part;
};

// Asked twice, before the row is read and before it is written, because in between registers hold the row and have no
// room for the answer.  `again` hides from the compiler that it is the same.
__device__ __forceinline__ Place place(const Input* x, int64 rows, int length, const RowMap& map) {
    int again;
    asm volatile("mov.s32 %0, 0;" : "=r"(again));
    Place here;
    here.row = int64(blockIdx.x + again) / kCluster * kRowsPerBlock + threadIdx.x / kGroup;
    here.active = here.row < rows;
    here.source = x + (here.active ? map(here.row) : 0);
    here.rank = kCluster > 1 ? cluster_rank() : 0;
    here.part = share_of_row(here.source, here.active ? length : 0, here.rank);
    return here;
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_rows(const Input* x, Output* y, int64 rows, int length, int64 x_inner, int64 x_outer_stride,
             int64 x_inner_stride, int64 y_stride) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const int thread = threadIdx.x % kGroup;
    Input* const slots = reinterpret_cast<Input*>(words + threadIdx.x / kGroup * kGroup * kSlots);
    __shared__ States::Shared shared;

    Compute values[kValues];
    const auto [row, active, source, rank, part] = place(x, rows, length, x_map);
    if constexpr (!kWithinWarp) {
        copy_words_async<Input, kSlots, kGroup>(slots, source, part, thread);
        copy_async_commit();
    }
    States exchange(shared);
    if constexpr (kWithinWarp) {
        load_words<Input, kSlots, kGroup>(values, source + part.column, part, thread, -infinity<Compute>());
    } else {
        copy_async_wait<0>();
        load_words<Input, kSlots, kGroup>(values, slots, part, thread, -infinity<Compute>());
    }
    const Compute m = lane_maximum<kLanes>(maximum_of<kValues>(values));
    const Compute s = lane_sum<kLanes>(exponential_sum<kKeep, kValues>(values, m, ExpOf()));

    State<Compute> total = state_of(m, s);
    if constexpr (!kWithinWarp) {
        const Compute record[2] = {total.m, total.s};
        total = merge_records<Compute, 2>(exchange.swap(record), ExpOf());
    }
    // A row with +inf has no softmax; one with NaN, or all -inf, becomes NaN by itself.
    const bool undefined = total.m == infinity<Compute>();
    const Place here = place(x, rows, length, x_map);
    Output* const target = y + here.row * y_stride;
    if constexpr (kOperation == kSoftmax) {
        const Compute over_s = undefined ? not_a_number<Compute>() : reciprocal(total.s);
        const Compute factor = rescale_factor(m, total.m, ExpOf()) * over_s;
        const Compute reference = total.m == -infinity<Compute>() ? Compute(0) : total.m;
        store_words<Output, kSlots, kElements, kGroup, Compute>(target, here.part, thread, [&](int i, int) {
            return kKeep ? values[i] * factor : ExpOf()(values[i] - reference) * over_s;
        });
    } else if constexpr (kOperation == kLogSoftmax) {
        // The dominant class's own logarithm is -log s, and small.
        const Compute log_sum_of_row = log_sum(values, total, true, &exchange);
        const Compute log_s = undefined ? not_a_number<Compute>() : log_sum_of_row;
        store_words<Output, kSlots, kElements, kGroup, Compute>(target, here.part, thread,
                                                                [&](int i, int) { return values[i] - total.m - log_s; });
    } else {
        const bool near_zero = fabs(total.m) < Compute(0.125);  // only then are the lost terms not below lse's digits
        const Compute lse = total.m + log_sum(values, total, near_zero, &exchange);
        if (here.active && here.rank == 0 && thread == 0) y[here.row] = Narrow<Output>::one(lse);
    }
}
