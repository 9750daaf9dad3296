// Gradients of softmax and log_softmax for rows longer than a cluster can keep: each piece's sum, the row's sum from its
// pieces in a fixed order, then the results.  As split.cu.
#include "../../_cuda/exchange.cuh"
#include "../../_cuda/pieces.cuh"
#include "gradient.cuh"

using namespace online_softmax;

using Sums = Exchange<Compute, 2>;

__device__ __forceinline__ Compute sum_of_block(Compute sum, Sums& exchange) {
    const Compute record[2] = {lane_sum<32>(sum), 0};
    const Compute* records = exchange.swap(record);
    sum = 0;
    for_my_records<Compute, 2>(records, [&](const Compute* r) { sum += r[0]; });
    return lane_sum<32>(sum);
}

// The words of the second array where the first one's are: 16 bytes at a time if its rows start alike.
__device__ __forceinline__ void load_second(Compute* values, const Input* row, const Part& part) {
    if (aligned_with<Input, kElements>(row, part)) {
        load_words<Input, kSlots, kThreads>(values, row + part.column, part, threadIdx.x, Compute(0));
    } else {
#pragma unroll
        for (int i = 0; i < kValues; ++i) values[i] = 0;
        for_each<kSlots, kElements, kThreads>(part, threadIdx.x, [&](int i, int position) {
            values[i] = Compute(widen(row[part.column + position]));
        });
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
gradient_pieces_sum(const Input* grad, const Input* y, int64 length, int pieces, int64 grad_inner,
                    int64 grad_outer_stride, int64 grad_inner_stride, int64 y_inner, int64 y_outer_stride,
                    int64 y_inner_stride, Compute* sums) {
    const RowMap grad_map{grad_inner, grad_outer_stride, grad_inner_stride};
    const RowMap y_map{y_inner, y_outer_stride, y_inner_stride};
    const Piece piece(y, y_map, length, pieces);
    __shared__ Sums::Shared shared;
    Sums exchange(shared);
    const Input* source = y + y_map(piece.row) + piece.offset;
    Compute results[kValues], gradients[kValues], sum = 0;
    load_words<Input, kSlots, kThreads>(results, source + piece.part.column, piece.part, threadIdx.x, Compute(0));
    load_second(gradients, grad + grad_map(piece.row) + piece.offset, piece.part);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
        Compute partial = 0;
#pragma unroll
        for (int k = 0; k < kElements; ++k) partial += summand(gradients[i * kElements + k], results[i * kElements + k]);
        sum += partial;
    }
    sum = sum_of_block(sum, exchange);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(kThreads)
gradient_pieces_merge(Compute* sums, int pieces) {  // one block a row; its sum replaces that of its first piece
    __shared__ Sums::Shared shared;
    Sums exchange(shared);
    Compute* const row = sums + int64(blockIdx.x) * pieces;
    Compute sum = 0;
    for (int piece = threadIdx.x; piece < pieces; piece += kThreads) sum += row[piece];
    sum = sum_of_block(sum, exchange);
    if (threadIdx.x == 0) *row = sum;
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
gradient_pieces_write(const Input* grad, const Input* y, Output* dx, int64 length, int pieces, int64 grad_inner,
                      int64 grad_outer_stride, int64 grad_inner_stride, int64 y_inner, int64 y_outer_stride,
                      int64 y_inner_stride, int64 dx_stride, const Compute* sums) {
    const RowMap grad_map{grad_inner, grad_outer_stride, grad_inner_stride};
    const RowMap y_map{y_inner, y_outer_stride, y_inner_stride};
    const Piece piece(y, y_map, length, pieces);
    const Compute sum = sums[piece.row * pieces];
    const Input* source = y + y_map(piece.row) + piece.offset;
    Compute results[kValues], gradients[kValues];
    load_words<Input, kSlots, kThreads>(results, source + piece.part.column, piece.part, threadIdx.x, Compute(0));
    load_second(gradients, grad + grad_map(piece.row) + piece.offset, piece.part);
    store_words<Output, kSlots, kElements, kThreads, Compute>(
        dx + piece.row * dx_stride + piece.offset, piece.part, threadIdx.x,
        [&](int i, int) { return input_gradient(gradients[i], results[i], sum); });
}
