// Rows longer than a cluster can keep: split over any number of blocks, read twice.
// Three launches: each piece's state, the row's state from its pieces in a fixed order, then the results.
#include "../../_cuda/pieces.cuh"
#include "../../_cuda/summary.cuh"

using namespace online_softmax;

enum Operation { kSoftmax, kLogSoftmax, kLogSumExp };
constexpr Operation kOperation = Operation(OPERATION);
using ExpOf = Either<sizeof(Input) == 2 && sizeof(Output) == 2, FastExp, Exp>::type;
using States = Exchange<Compute, 2>;
static_assert(kCluster == 1 && !kWithinWarp, "pieces are blocks");

__device__ __forceinline__ State<Compute> state_of_block(State<Compute> mine, States& exchange) {
    const Compute m = lane_maximum<32>(mine.m);
    const Compute record[2] = {m, lane_sum<32>(mine.s * rescale_factor(mine.m, m, Exp()))};
    return merge_records<Compute, 2>(exchange.swap(record), ExpOf());
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
pieces_summarise(const Input* x, int64 length, int pieces, int64 x_inner, int64 x_outer_stride, int64 x_inner_stride,
                 State<Compute>* states) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const Piece piece(x, x_map, length, pieces);
    __shared__ States::Shared shared;
    States exchange(shared);
    const Input* source = x + x_map(piece.row) + piece.offset;
    Compute values[kValues];
    load_words<Input, kSlots, kThreads>(values, source + piece.part.column, piece.part, threadIdx.x,
                                               -infinity<Compute>());
    const Compute m = maximum_of<kValues>(values);
    const State<Compute> mine = state_of(m, exponential_sum<false, kValues>(values, m, ExpOf()));
    const State<Compute> total = state_of_block(mine, exchange);
    if (threadIdx.x == 0) states[blockIdx.x] = total;
}

// One block a row; its state replaces that of its first piece.  logsumexp is done here.
extern "C" __global__ void __launch_bounds__(kThreads)
pieces_merge(State<Compute>* states, int pieces, Output* y) {
    __shared__ States::Shared shared;
    States exchange(shared);
    State<Compute>* const row = states + int64(blockIdx.x) * pieces;
    State<Compute> mine = empty_state<Compute>();
    for (int piece = threadIdx.x; piece < pieces; piece += kThreads) mine = merge(mine, row[piece], Exp());
    const State<Compute> total = state_of_block(mine, exchange);
    if (threadIdx.x != 0) return;
    *row = total;
    if (kOperation == kLogSumExp) y[blockIdx.x] = Narrow<Output>::one(total.m + log(total.s));
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
pieces_write(const Input* x, Output* y, int64 length, int pieces, int64 x_inner, int64 x_outer_stride,
             int64 x_inner_stride, int64 y_stride, const State<Compute>* states) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const Piece piece(x, x_map, length, pieces);
    const State<Compute> total = states[piece.row * pieces];
    const bool undefined = total.m == infinity<Compute>();
    const Compute reference = total.m == -infinity<Compute>() ? Compute(0) : total.m;
    const Compute scale = undefined ? not_a_number<Compute>() : reciprocal(total.s);
    const Compute log_s = undefined ? not_a_number<Compute>() : log(total.s);
    const Input* source = x + x_map(piece.row) + piece.offset;
    Compute values[kValues];
    load_words<Input, kSlots, kThreads>(values, source + piece.part.column, piece.part, threadIdx.x,
                                               -infinity<Compute>());
    store_words<Output, kSlots, kElements, kThreads, Compute>(
        y + piece.row * y_stride + piece.offset, piece.part, threadIdx.x, [&](int i, int) {
            return kOperation == kSoftmax ? ExpOf()(values[i] - reference) * scale : values[i] - total.m - log_s;
        });
}
