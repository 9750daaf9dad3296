// softmax, log_softmax and logsumexp of rows that the lanes of a warp, or some of them, hold in registers.
//
// A row is read once.  Its lanes take their maximum, exponentiate once against it and sum.
#include "../../_cuda/rows.cuh"
#include "../../_cuda/summary.cuh"

using namespace online_softmax;

enum Operation { kSoftmax, kLogSoftmax, kLogSumExp };
constexpr Operation kOperation = Operation(OPERATION);

static_assert(kWithinWarp && kCluster == 1, "block.cu takes what needs more lanes");

// A sum forgives what a single result of fp32 would not: the fast exponential's error, |x - m| * 2^-24.
constexpr bool kForgiving = sizeof(Input) == 2 && (sizeof(Output) == 2 || (kOperation == kLogSumExp && !kDouble));
using ExpOf = Either<kForgiving, FastExp, Exp>::type;
constexpr bool kKeep = kOperation == kSoftmax;  // the exponentials

// The sum of exp(x - m), in small blocks; for softmax the exponentials replace the values.
__device__ __forceinline__ Compute sum_of_exponentials(Compute* values, Compute m) {
    const Compute reference = m == -infinity<Compute>() ? Compute(0) : m;
    Compute sum = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
        Compute partial = 0;
#pragma unroll
        for (int k = i * kElements; k < (i + 1) * kElements; ++k) {
            const Compute y = kKeep ? exponential<ExpOf>(values[k], reference) : ExpOf()(values[k] - reference);
            partial += y;
            if constexpr (kKeep) values[k] = y;
        }
        sum += partial;
    }
    return sum;
}

// log s of a row whose maximum holds nearly all of the sum: s = 1 + rest rounds the rest away, so the sum is taken
// again without one maximal element.
__device__ Compute precise_log_sum(const Compute* values, Compute m) {
    Compute rest = 0, maxima = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
        if (values[i] == m) maxima += 1;
        else rest += Exp()(values[i] - m);
    }
    rest = lane_sum<kLanes>(rest);
    maxima = lane_sum<kLanes>(maxima);
    return log1p((maxima - 1) + rest);
}

// log s, with the terms that rounding s lost where they may show.
__device__ __forceinline__ Compute log_sum(const Compute* values, State<Compute> row, bool shows) {
    if constexpr (sizeof(Input) > 2) {
        const bool lost = shows && row.s < Compute(1.125);
        // Rows that share a warp go together: its shuffles need all lanes.
        if (kLanes < 32 ? __any_sync(0xffffffffu, lost) : lost) {
            const Compute precise = precise_log_sum(values, row.m);
            if (lost) return precise;
        }
    }
    return log(row.s);
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_rows(const Input* x, Output* y, int64 rows, int length, int64 x_inner, int64 x_outer_stride,
             int64 x_inner_stride, int64 y_stride) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const auto [row, active, source, rank, thread, part] = place(x, rows, length, x_map);
    Compute values[kValues];
    const auto read = [policy = policy_of_rows()](const Input* from) {
        using Word = Pack<Input, kElements>;
        if constexpr (kOperation == kLogSumExp) return Word::of_word(load(from, NoPolicy()));
        else return Word::of_word(load(from, policy));
    };
    load_words<Input, kSlots, kGroup>(values, source + part.column, part, thread, -infinity<Compute>(),
                                      [](int, Compute x) { return x; }, read);
    const Compute m = lane_maximum<kLanes>(maximum_of<kValues>(values));
    const Compute s = lane_sum<kLanes>(sum_of_exponentials(values, m));

    const State<Compute> total = state_of(m, s);
    // A row with +inf has no softmax; one with NaN, or all -inf, becomes NaN by itself.
    const bool undefined = total.m == infinity<Compute>();
    Output* const target = y + row * y_stride;
    if constexpr (kOperation == kSoftmax) {
        const Compute over_s = undefined ? not_a_number<Compute>() : reciprocal(total.s);
        store_words<Output, kSlots, kElements, kGroup, Compute>(target, part, thread,
                                                                [&](int i, int) { return values[i] * over_s; });
    } else if constexpr (kOperation == kLogSoftmax) {
        // The dominant class's own logarithm is -log s, and small.
        const Compute log_sum_of_row = log_sum(values, total, true);
        const Compute log_s = undefined ? not_a_number<Compute>() : log_sum_of_row;
        store_words<Output, kSlots, kElements, kGroup, Compute>(target, part, thread,
                                                                [&](int i, int) { return values[i] - total.m - log_s; });
    } else {
        const bool near_zero = fabs(total.m) < Compute(0.125);  // only then are the lost terms not below lse's digits
        const Compute lse = total.m + log_sum(values, total, near_zero);
        if (active && thread == 0) y[row] = Narrow<Output>::one(lse);
    }
}
