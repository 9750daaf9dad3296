// softmax and log_softmax of rows of which a multiprocessor has room for one, kept in the shared memory of a cluster: read
// once.
//
// A thread's words come in chunks.  Each is summarised as it lands, while later ones are on their way; when the row's
// state is known the words are read from shared memory again.  The clusters stay, and the next row's words take the
// place of this one's, chunk by chunk, as the results leave.
#include "precise_log.cuh"

using namespace online_softmax;

constexpr bool kLog = OPERATION == 1;
constexpr int kChunkSlots = 2;
constexpr int kChunks = kSlots / kChunkSlots;
constexpr int kChunkWords = kChunkSlots * kThreads;
static_assert(kSlots % kChunkSlots == 0 && kPersistent && kGroup == kThreads, "whole chunks, clusters that stay");

using ExpOf = Either<sizeof(Input) == 2 && sizeof(Output) == 2, FastExp, Exp>::type;
using States = Exchange<Compute, 2>;

extern __shared__ uint4 words[];

// fn(first word of a chunk, chunks that follow it), unrolled by the template.
template <int CHUNK = 0, class Fn>
__device__ __forceinline__ void for_each_chunk(const Fn& fn) {
    if constexpr (CHUNK < kChunks) {
        fn.template operator()<kChunks - 1 - CHUNK>(CHUNK * kChunkWords);
        for_each_chunk<CHUNK + 1>(fn);
    }
}

__device__ __forceinline__ State<Compute> state_of_words(const uint4 (&held)[kChunkSlots]) {
    const Compute m = maximum_of_words<Input, kChunkSlots, Compute>(held);
    const Compute reference = m == -infinity<Compute>() ? Compute(0) : m;
    Compute sum = 0;
#pragma unroll
    for (int i = 0; i < kChunkSlots; ++i) {
        Compute values[kElements], partial = 0;
        unpack_word<Input>(held[i], values);
#pragma unroll
        for (int k = 0; k < kElements; ++k) partial += ExpOf()(values[k] - reference);
        sum += partial;
    }
    return state_of(m, sum);
}

struct Kept {  // words in shared memory
    __device__ __forceinline__ void load(uint4 (&held)[kChunkSlots], int first) const {
#pragma unroll
        for (int i = 0; i < kChunkSlots; ++i) held[i] = words[first + i * kThreads + threadIdx.x];
    }
};

struct Summarise {
    State<Compute>& state;
    template <int LATER>
    __device__ __forceinline__ void operator()(int first) const {
        copy_async_wait<LATER>();
        uint4 held[kChunkSlots];
        Kept().load(held, first);
        state = merge(state, state_of_words(held), ExpOf());
    }
};

// The row's words are still in shared memory.
__device__ Compute precise_log_sum(Compute edge, Compute m, States& exchange) {
    SumWithoutMaxima sum{m};
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
        uint4 held[kChunkSlots];
        Kept().load(held, chunk * kChunkWords);
        Compute partial = 0;
#pragma unroll
        for (int i = 0; i < kChunkSlots; ++i) partial += sum.rest_of(held[i]);
        sum.rest += partial;
    }
    return sum.log_of_row(edge, exchange);
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_staged(const Input* x, Output* y, int64 rows, int length, int64 x_inner, int64 x_outer_stride,
               int64 x_inner_stride, int64 y_stride) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const int rank = kCluster > 1 ? cluster_rank() : 0;
    const int64 stride = int64(gridDim.x) / kCluster;
    int64 row = int64(blockIdx.x) / kCluster;
    __shared__ States::Shared shared;

    const Input* source = x + (row < rows ? x_map(row) : 0);
    Part part = share_of_row(source, length, rank);
    const auto fetch = [&](int first) {
        copy_whole_words<Input, kChunkSlots, kThreads>(reinterpret_cast<Input*>(words), source, part, first + int(threadIdx.x),
                                                       word_of_minus_infinity<Input>());
        copy_async_commit();
    };
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) fetch(chunk * kChunkWords);
    Compute next_edge = edge_element(source, part, threadIdx.x, -infinity<Compute>());
    States exchange(shared);

    do {
        const Compute edge = next_edge;
        State<Compute> state = state_of(edge, edge == -infinity<Compute>() ? Compute(0) : Compute(1) + (edge - edge));
        for_each_chunk(Summarise{state});

        const Compute m = lane_maximum<32>(state.m);
        const Compute record[2] = {m, lane_sum<32>(state.s * rescale_factor(state.m, m, ExpOf()))};
        const State<Compute> total = merge_records<Compute, 2>(exchange.swap(record), ExpOf());
        // As in cuda.cu: +inf has no softmax, NaN and all -inf become NaN by themselves.
        const bool undefined = total.m == infinity<Compute>();
        const Compute reference = total.m == -infinity<Compute>() ? Compute(0) : total.m;
        const Compute over_s = undefined ? not_a_number<Compute>() : reciprocal(total.s);
        Compute log_s = 0;
        if constexpr (kLog) {
            log_s = log(total.s);
            if constexpr (sizeof(Input) > 2) {
                if (total.s < Compute(1.125)) log_s = precise_log_sum(edge, total.m, exchange);
            }
            if (undefined) log_s = not_a_number<Compute>();
        }
        const auto result = [&](Compute v) { return kLog ? v - total.m - log_s : ExpOf()(v - reference) * over_s; };
        Output* const target_row = y + row * y_stride;
        const Target<Output, kElements, kThreads> target(target_row, part, threadIdx.x);
        const Part current = part;
        const auto write = [&](const uint4 (&held)[kChunkSlots], int first) {
#pragma unroll
            for (int i = 0; i < kChunkSlots; ++i) {
                Compute values[kElements];
                unpack_word<Input>(held[i], values);
#pragma unroll
                for (int k = 0; k < kElements; ++k) values[k] = result(values[k]);
                if (current.whole(first + i * kThreads + int(threadIdx.x))) target.store(first / kThreads + i, values);
            }
        };
        row += stride;
        source = x + (row < rows ? x_map(row) : 0);
        part = share_of_row(source, row < rows ? length : 0, rank);
        next_edge = edge_element(source, part, threadIdx.x, -infinity<Compute>());
#pragma unroll 2
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            uint4 held[kChunkSlots];
            Kept().load(held, chunk * kChunkWords);
            write(held, chunk * kChunkWords);
            fetch(chunk * kChunkWords);
        }
        const int position = edge_position<Input>(current, threadIdx.x);
        if (position >= 0) target_row[current.column + position] = Narrow<Output>::one(result(edge));
    } while (row < rows);
}
