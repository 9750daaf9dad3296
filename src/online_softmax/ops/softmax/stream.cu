// logsumexp: a warp, a block or a cluster walks along its row, the next words on their way while it sums the last.
// Nothing is kept: where rounding took small terms from a result near zero, the row is read again.
#include "precise_log.cuh"

using namespace online_softmax;

static_assert(kGroup >= 2 * kElements, "each element of the edges has a thread");

// A sum forgives what a single result of fp32 would not: the fast exponential's error, |x - m| * 2^-24.
using ExpOf = Either<sizeof(Input) == 2 && !kDouble, FastExp, Exp>::type;
using States = Exchange<Compute, 2>;
constexpr int kStep = kSlots * kGroup;

__device__ __forceinline__ Compute precise_log_sum(const Input* source, const Part& part, int thread, Compute edge,
                                                   Compute m, States& exchange) {
    SumWithoutMaxima sum{m};
    Compute lost = 0;
#pragma unroll 1
    for (int word = thread; word < part.whole_to; word += kGroup) {
        const Compute partial = sum.rest_of(load_word(source, part, word, word_of_minus_infinity<Input>()));
        // A thread may have thousands of terms: what each addition rounds away goes into the next one.
        const Compute term = partial - lost, both = sum.rest + term;
        lost = (both - sum.rest) - term;
        sum.rest = both;
    }
    return sum.log_of_row(edge, exchange);
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
logsumexp_rows(const Input* x, Output* y, int64 rows, int length, int64 x_inner, int64 x_outer_stride,
               int64 x_inner_stride, int64) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const auto [row, active, source, rank, thread, part] = place(x, rows, length, x_map);
    __shared__ States::Shared shared;
    const uint4 missing = word_of_minus_infinity<Input>();
    const Input* mine = source + part.column + thread * kElements;
    uint4 next[kSlots];
    const auto load = [&](int first) {
#pragma unroll
        for (int i = 0; i < kSlots; ++i)
            next[i] = load_if(mine + i * (kGroup * kElements), part.whole(first + i * kGroup + thread), missing, NoPolicy());
        mine += kStep * kElements;
    };
    load(0);
    const Compute edge = edge_element(source, part, thread, -infinity<Compute>());
    States exchange(shared);

    State<Compute> state = state_of(edge, edge == -infinity<Compute>() ? Compute(0) : Compute(1) + (edge - edge));
#pragma unroll 1
    for (int first = 0; first < part.whole_to; first += kStep) {
        uint4 some[kSlots];
#pragma unroll
        for (int i = 0; i < kSlots; ++i) some[i] = next[i];
        load(first + kStep);
        const Compute m = maximum_of_words<Input, kSlots, Compute>(some);
        const Compute reference = m == -infinity<Compute>() ? Compute(0) : m;
        Compute sum = 0;
#pragma unroll
        for (int i = 0; i < kSlots; ++i) {
            Compute values[kElements], partial = 0;
            unpack_word<Input>(some[i], values);
#pragma unroll
            for (int k = 0; k < kElements; ++k) partial += ExpOf()(values[k] - reference);
            sum += partial;
        }
        state = merge(state, state_of(m, sum), ExpOf());
    }
    const Compute m = lane_maximum<kLanes>(state.m);
    State<Compute> total{m, lane_sum<kLanes>(state.s * rescale_factor(state.m, m, ExpOf()))};
    if constexpr (!kWithinWarp) {
        const Compute record[2] = {total.m, total.s};
        total = merge_records<Compute, 2>(exchange.swap(record), ExpOf());
    }
    Compute log_s = log(total.s);
    if constexpr (sizeof(Input) > 2) {  // only near zero are the lost terms not below lse's digits
        if (total.s < Compute(1.125) && fabs(total.m) < Compute(0.125))
            log_s = precise_log_sum(source, part, thread, edge, total.m, exchange);
    }
    if (active && rank == 0 && thread == 0) y[row] = Narrow<Output>::one(total.m + log_s);
}
