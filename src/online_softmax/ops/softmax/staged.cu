// softmax and log_softmax of rows too long for registers, kept in the shared memory of a cluster: still read once.
//
// A thread's words come in chunks.  Each is summarised as it lands, while later ones are on their way; when the row's
// state is known the words are read from shared memory again, and the next row's words take their place one chunk at a
// time, so that loads and stores overlap.
#include "../../_cuda/rows.cuh"
#include "../../_cuda/summary.cuh"

using namespace online_softmax;

constexpr bool kLog = OPERATION == 1;
constexpr int kChunkSlots = sizeof(Input) == 2 ? 2 : 4;
constexpr int kChunks = kSlots / kChunkSlots;
constexpr int kChunkValues = kChunkSlots * kElements;
static_assert(kSlots % kChunkSlots == 0 && !kWithinWarp, "whole chunks, whole blocks");

using ExpOf = Either<sizeof(Input) == 2 && sizeof(Output) == 2, FastExp, Exp>::type;
using States = Exchange<Compute, 2>;

extern __shared__ uint4 words[];

// for_each_chunk(fn): fn(first word of the thread's chunk, chunks that follow it), unrolled by the template.
template <int CHUNK = 0, class Fn>
__device__ __forceinline__ void for_each_chunk(const Fn& fn) {
    if constexpr (CHUNK < kChunks) {
        fn.template operator()<kChunks - 1 - CHUNK>(CHUNK * kChunkSlots * kThreads + int(threadIdx.x));
        for_each_chunk<CHUNK + 1>(fn);
    }
}

struct Row {
    const Input* slots;
    Part part;
    __device__ __forceinline__ void load(Compute (&values)[kChunkValues], int first) const {
        load_words<Input, kChunkSlots, kThreads>(values, slots, part, first, -infinity<Compute>());
    }
};

struct Summarise {
    const Row& row;
    State<Compute>& state;
    template <int LATER>
    __device__ __forceinline__ void operator()(int first) const {
        copy_async_wait<LATER>();
        Compute values[kChunkValues];
        row.load(values, first);
        const Compute m = maximum_of<kChunkValues>(values);
        state = merge(state, state_of(m, exponential_sum<false, kChunkValues>(values, m, ExpOf())), ExpOf());
    }
};

// log s of a row whose maximum holds nearly all of the sum, as in cuda.cu; the row's words are still in shared memory.
__device__ Compute precise_log_sum(const Row& row, Compute m, States& exchange) {
    Compute rest = 0, maxima = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
        Compute values[kChunkValues], partial = 0;
        row.load(values, chunk * kChunkSlots * kThreads + threadIdx.x);
#pragma unroll
        for (int i = 0; i < kChunkValues; ++i) {
            if (values[i] == m) maxima += 1;
            else partial += Exp()(values[i] - m);
        }
        rest += partial;
    }
    const Compute record[2] = {lane_sum<32>(rest), lane_sum<32>(maxima)};
    const Compute* records = exchange.swap(record);
    rest = maxima = 0;
    for_my_records<Compute, 2>(records, [&](const Compute* r) { rest += r[0], maxima += r[1]; });
    return log1p((lane_sum<32>(maxima) - 1) + lane_sum<32>(rest));
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_staged(const Input* x, Output* y, int64 rows, int length, int64 x_inner, int64 x_outer_stride,
               int64 x_inner_stride, int64 y_stride) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const int rank = kCluster > 1 ? cluster_rank() : 0;
    const int64 stride = int64(gridDim.x) / kCluster;
    int64 row = int64(blockIdx.x) / kCluster;

    Input* const slots = reinterpret_cast<Input*>(words);
    __shared__ States::Shared shared;
    const auto fetch = [&](int64 r, int first) {
        if (r < rows) {
            const Input* source = x + x_map(r);
            copy_words_async<Input, kChunkSlots, kThreads>(slots, source, share_of_row(source, length, rank), first);
        }
        copy_async_commit();
    };
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) fetch(row, chunk * kChunkSlots * kThreads + threadIdx.x);
    States exchange(shared);

    for (; row < rows; row += stride) {
        const Row current{slots, share_of_row(x + x_map(row), length, rank)};
        State<Compute> state = empty_state<Compute>();
        for_each_chunk(Summarise{current, state});

        const Compute m = lane_maximum<32>(state.m);
        const Compute record[2] = {m, lane_sum<32>(state.s * rescale_factor(state.m, m, ExpOf()))};
        const State<Compute> total = merge_records<Compute, 2>(exchange.swap(record), ExpOf());
        // As in cuda.cu: +inf has no softmax, NaN and all -inf become NaN by themselves.
        const bool undefined = total.m == infinity<Compute>();
        const Compute reference = total.m == -infinity<Compute>() ? Compute(0) : total.m;
        const Compute scale = undefined ? not_a_number<Compute>() : reciprocal(total.s);
        Compute log_s = 0;
        if constexpr (kLog) {
            log_s = log(total.s);
            if constexpr (sizeof(Input) > 2) {
                if (total.s < Compute(1.125)) log_s = precise_log_sum(current, total.m, exchange);
            }
            if (undefined) log_s = not_a_number<Compute>();
        }
#pragma unroll 1
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int first = chunk * kChunkSlots * kThreads + threadIdx.x;
            Compute values[kChunkValues];
            current.load(values, first);
            store_words<Output, kChunkSlots, kElements, kThreads, Compute>(
                y + row * y_stride, current.part, first, [&](int i, int) {
                    return kLog ? values[i] - total.m - log_s : ExpOf()(values[i] - reference) * scale;
                });
            fetch(row + stride, first);
        }
    }
}
