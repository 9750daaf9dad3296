// Rows longer than a cluster can keep: split over any number of blocks, read twice.
// Three launches: each piece's state, the row's state from its pieces in a fixed order, then the results.
#include "../../_cuda/pieces.cuh"
#include "../../_cuda/summary.cuh"

using namespace online_softmax;

enum Operation { kSoftmax, kLogSoftmax, kLogSumExp };
constexpr Operation kOperation = Operation(OPERATION);
// A sum forgives what a single result of fp32 would not: the fast exponential's error, |x - m| * 2^-24.
constexpr bool kForgiving = sizeof(Input) == 2 && (sizeof(Output) == 2 || (kOperation == kLogSumExp && !kDouble));
using ExpOf = Either<kForgiving, FastExp, Exp>::type;
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

// log s of a row whose maximum holds nearly all of the sum: s = 1 + rest rounds the rest away, so the row is read again
// and summed without one maximal element.
__device__ Compute precise_log_sum(const Input* row, int64 length, Compute m, States& exchange) {
    Compute rest = 0, lost = 0, maxima = 0;
#pragma unroll 8
    for (int64 at = threadIdx.x; at < length; at += kThreads) {
        const Compute value = Compute(widen(row[at]));
        if (value == m) {
            maxima += 1;
            continue;
        }
        // A thread has thousands of terms: what each addition rounds away goes into the next one.
        const Compute term = Exp()(value - m) - lost, sum = rest + term;
        lost = (sum - rest) - term;
        rest = sum;
    }
    const Compute record[2] = {lane_sum<32>(rest), lane_sum<32>(maxima)};
    const Compute* records = exchange.swap(record);
    rest = maxima = 0;
    for_my_records<Compute, 2>(records, [&](const Compute* r) { rest += r[0], maxima += r[1]; });
    return log1p((lane_sum<32>(maxima) - 1) + lane_sum<32>(rest));
}

// One block a row; what pieces_write needs replaces the state of the row's first piece: (m, s), for log_softmax
// (m, log s).  logsumexp is done here.
extern "C" __global__ void __launch_bounds__(kThreads)
pieces_merge(const Input* x, int64 length, int pieces, int64 x_inner, int64 x_outer_stride, int64 x_inner_stride,
             State<Compute>* states, Output* y) {
    __shared__ States::Shared shared;
    States exchange(shared);
    State<Compute>* const row = states + int64(blockIdx.x) * pieces;
    State<Compute> mine = empty_state<Compute>();
    for (int piece = threadIdx.x; piece < pieces; piece += kThreads) mine = merge(mine, row[piece], Exp());
    const State<Compute> total = state_of_block(mine, exchange);
    Compute log_s = log(total.s);
    if constexpr (sizeof(Input) > 2 && kOperation != kSoftmax) {  // as in cuda.cu; the same for every thread
        const bool shows = kOperation == kLogSoftmax || fabs(total.m) < Compute(0.125);
        if (shows && total.s < Compute(1.125)) {
            const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
            log_s = precise_log_sum(x + x_map(blockIdx.x), length, total.m, exchange);
        }
    }
    if (threadIdx.x != 0) return;
    *row = {total.m, kOperation == kLogSoftmax ? log_s : total.s};
    if (kOperation == kLogSumExp) y[blockIdx.x] = Narrow<Output>::one(total.m + log_s);
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
    const Compute log_s = undefined ? not_a_number<Compute>() : total.s;
    const Input* source = x + x_map(piece.row) + piece.offset;
    Compute values[kValues];
    load_words<Input, kSlots, kThreads>(values, source + piece.part.column, piece.part, threadIdx.x,
                                               -infinity<Compute>());
    store_words<Output, kSlots, kElements, kThreads, Compute>(
        y + piece.row * y_stride + piece.offset, piece.part, threadIdx.x, [&](int i, int) {
            return kOperation == kSoftmax ? ExpOf()(values[i] - reference) * scale : values[i] - total.m - log_s;
        });
}
