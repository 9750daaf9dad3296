// softmax and log_softmax of rows that a few warps, a block or a cluster keep: read once.
//
// A thread takes HELD of its words into registers, by ordinary loads that are all asked for before the first is needed, and the
// rest into shared memory: a few by asynchronous copies, but as many as it holds by way of the registers, because loads read
// faster.  16-bit words stay packed.  Each warp sums exponentials against the maximum of its own part; when the row's state
// is known, the words are exponentiated again, against the row's maximum.  Where there is room for one block alone, clusters
// stay, and the next row's words are asked for as registers become free.
#include "precise_log.cuh"

using namespace online_softmax;

constexpr bool kLog = OPERATION == 1;
constexpr int kHeld = HELD, kKept = kSlots - kHeld;  // words of a thread in registers, and in shared memory
constexpr bool kInTurn = kKept == kHeld;  // registers hold the first half of the words, then the second
constexpr int kFirstHeld = kInTurn ? kKept : 0, kFirstKept = kInTurn ? 0 : kHeld;  // slots
constexpr int kChunk = 2;  // of those copied, summarised together
static_assert(kInTurn || kKept % kChunk == 0, "whole chunks");
static_assert(kHeld > 0 && kGroup >= 2 * kElements, "each element of the edges has a thread");
static_assert(!kPersistent || (kInTurn && kGroup == kThreads), "whoever stays has registers to load into");

using ExpOf = Either<sizeof(Input) == 2 && sizeof(Output) == 2, FastExp, Exp>::type;
using States = Exchange<Compute, 2>;

extern __shared__ uint4 words[];

__device__ __forceinline__ uint4* kept_slots() {  // this thread's, kGroup apart
    return words + threadIdx.x / kGroup * (kGroup * kKept) + threadIdx.x % kGroup;
}

// The words from slot `first` on.
__device__ __forceinline__ void load_held(uint4 (&held)[kHeld], int first, const Place<Input>& here, uint64 policy) {
    const Input* const mine = here.source + here.part.column + here.thread * kElements;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int slot = first + i;
        held[i] = load_if(mine + slot * (kGroup * kElements), here.part.whole(slot * kGroup + here.thread),
                          word_of_minus_infinity<Input>(), policy);
    }
}

template <int COUNT>
__device__ __forceinline__ Compute sum_of_words(const uint4* some, Compute m) {
    const Compute reference = m == -infinity<Compute>() ? Compute(0) : m;
    Compute sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        Compute values[kElements], partial = 0;
        unpack_word<Input>(some[i], values);
#pragma unroll
        for (int k = 0; k < kElements; ++k) partial += ExpOf()(values[k] - reference);
        sum += partial;
    }
    return sum;
}

template <int COUNT>
__device__ __forceinline__ State<Compute> state_of_words(const uint4* some) {
    const Compute m = maximum_of_words<Input, COUNT, Compute>(some);
    return state_of(m, sum_of_words<COUNT>(some, m));
}

// The state of this thread's warp, or of its lanes.  `load_second()` puts the second half of the words
// where the first one was.
template <class Load>
__device__ __forceinline__ State<Compute> state_of_lanes(const uint4 (&held)[kHeld], Compute edge, const Load& load_second) {
    if constexpr (kKept == 0) {  // one maximum for all lanes: nothing is rescaled
        const Compute m = lane_maximum<kLanes>(maximum(edge, maximum_of_words<Input, kHeld, Compute>(held)));
        const Compute reference = m == -infinity<Compute>() ? Compute(0) : m;
        return state_of(m, lane_sum<kLanes>(sum_of_words<kHeld>(held, m) + ExpOf()(edge - reference)));
    } else {
        State<Compute> state = state_of(edge, edge == -infinity<Compute>() ? Compute(0) : Compute(1) + (edge - edge));
        state = merge(state, state_of_words<kHeld>(held), ExpOf());
        if constexpr (kInTurn) {
#pragma unroll
            for (int i = 0; i < kHeld; ++i) kept_slots()[i * kGroup] = held[i];
            load_second();
            state = merge(state, state_of_words<kHeld>(held), ExpOf());
        } else {
            copy_async_wait<0>();
#pragma unroll 1
            for (int j = 0; j < kKept; j += kChunk) {
                uint4 some[kChunk];
#pragma unroll
                for (int i = 0; i < kChunk; ++i) some[i] = kept_slots()[(j + i) * kGroup];
                state = merge(state, state_of_words<kChunk>(some), ExpOf());
            }
        }
        const Compute m = lane_maximum<kLanes>(state.m);
        return {m, lane_sum<kLanes>(state.s * rescale_factor(state.m, m, ExpOf()))};
    }
}

__device__ Compute precise_log_sum(const uint4* held, Compute edge, Compute m, States& exchange) {
    SumWithoutMaxima sum{m};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum.rest += sum.rest_of(held[i]);
#pragma unroll 1
    for (int j = 0; j < kKept; ++j) sum.rest += sum.rest_of(kept_slots()[j * kGroup]);
    return sum.log_of_row(edge, exchange);
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_blocks(const Input* x, Output* y, int64 rows, int length, int64 x_inner, int64 x_outer_stride,
               int64 x_inner_stride, int64 y_stride) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const uint64 policy = policy_of_rows();
    __shared__ States::Shared shared;
    if constexpr (kKept > 0 && !kInTurn) {
        const auto here = place(x, rows, length, x_map);
        const Input* const mine = here.source + here.part.column + here.thread * kElements;
#pragma unroll
        for (int j = 0; j < kKept; ++j) {
            const int slot = kFirstKept + j;
            if (here.part.whole(slot * kGroup + here.thread))
                copy_async(kept_slots() + j * kGroup, mine + slot * (kGroup * kElements));
            else kept_slots()[j * kGroup] = word_of_minus_infinity<Input>();
        }
        copy_async_commit();
    }
    uint4 held[kHeld];
    Compute next_edge;
    const auto begin = [&](int ahead) {  // a row's first words are on their way
        const auto here = place(x, rows, length, x_map, ahead);
        load_held(held, 0, here, policy);
        next_edge = edge_element(here.source, here.part, here.thread, -infinity<Compute>());
    };
    begin(0);
    States exchange(shared);

    int ahead = 0;  // rows of a megabyte and more: few
    const int stride = kPersistent ? int(gridDim.x) / kCluster : 0;
    do {
        const Compute edge = next_edge;
        State<Compute> total =
            state_of_lanes(held, edge, [&] { load_held(held, kFirstHeld, place(x, rows, length, x_map, ahead), policy); });
        if constexpr (!kWithinWarp) {
            const Compute record[2] = {total.m, total.s};
            total = merge_records<Compute, 2>(exchange.swap(record), ExpOf());
        }
        // A row with +inf has no softmax; one with NaN, or all -inf, becomes NaN by itself.
        const bool undefined = total.m == infinity<Compute>();
        const Compute reference = total.m == -infinity<Compute>() ? Compute(0) : total.m;
        const Compute over_s = undefined ? not_a_number<Compute>() : reciprocal(total.s);
        Compute log_s = 0;
        if constexpr (kLog) {  // the dominant class's own logarithm is -log s, and small
            log_s = log(total.s);
            if constexpr (sizeof(Input) > 2) {
                if (total.s < Compute(1.125)) log_s = precise_log_sum(held, edge, total.m, exchange);
            }
            if (undefined) log_s = not_a_number<Compute>();
        }
        const auto result = [&](Compute v) { return kLog ? v - total.m - log_s : ExpOf()(v - reference) * over_s; };

        const auto here = place(x, rows, length, x_map, ahead);
        Output* const target_row = y + here.row * y_stride;
        const Target<Output, kElements, kGroup> target(target_row, here.part, here.thread);
        const auto write = [&](int slot, Compute (&values)[kElements]) {
#pragma unroll
            for (int k = 0; k < kElements; ++k) values[k] = result(values[k]);
            if (here.part.whole(slot * kGroup + here.thread)) target.store(slot, values);
        };
        const uint32 nothing = unknown_zero(rows);
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            Compute values[kElements];
            unpack_again<Input>(held[i], values, nothing);
            write(kFirstHeld + i, values);
        }
        const int position = edge_position<Input>(here.part, here.thread);
        if (position >= 0) target_row[here.part.column + position] = Narrow<Output>::one(result(edge));
        if constexpr (kPersistent) begin(ahead + stride);
#pragma unroll 2
        for (int j = 0; j < kKept; ++j) {
            Compute values[kElements];
            unpack_word<Input>(kept_slots()[j * kGroup], values);
            write(kFirstKept + j, values);
        }
        ahead += stride;
    } while (kPersistent && int64(blockIdx.x) / kCluster + ahead < rows);
}
