// Gradients of softmax and log_softmax for rows that the largest clusters can keep in part, as backward.cu: the words beyond are
// read a second time, and then the second-level cache has them.  The clusters stay, and the next row's words take the place of
// this one's as the results leave.
#include "../../_cuda/exchange.cuh"
#include "gradient.cuh"

using namespace online_softmax;

using Sums = Exchange<Compute, 2>;
static_assert(kPersistent && kGroup == kThreads, "clusters stay");
constexpr int kBatch = 2;  // words a thread takes at once

extern __shared__ uint4 words[];

// Words beyond shared memory; the gradient's rows may start off the words of the result.
__device__ __forceinline__ void load_pair(uint4& y, uint4& grad, const Input* y_row, const Input* grad_row,
                                          const Part& part, int word) {
    const uint4 zero = make_uint4(0, 0, 0, 0);
    y = load_word(y_row, part, word, zero);
    if (aligned_with<Input, kElements>(grad_row, part)) {
        grad = load_word(grad_row, part, word, zero);
        return;
    }
    grad = zero;
    if (!part.whole(word)) return;
    const Input* const from = grad_row + part.column + int64(word) * kElements;
    Compute values[kElements];
#pragma unroll
    for (int k = 0; k < kElements; ++k) values[k] = Compute(widen(from[k]));
    const auto pack = Pack<Input, kElements>::of(values);
    grad = make_uint4(pack.at[0], pack.at[1], pack.at[2], pack.at[3]);
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_backward_staged(const Input* grad, const Input* y, Output* dx, int64 rows, int length, int64 grad_inner,
                        int64 grad_outer_stride, int64 grad_inner_stride, int64 y_inner, int64 y_outer_stride,
                        int64 y_inner_stride, int64 dx_stride) {
    const RowMap grad_map{grad_inner, grad_outer_stride, grad_inner_stride};
    const RowMap y_map{y_inner, y_outer_stride, y_inner_stride};
    const int thread = threadIdx.x, rank = kCluster > 1 ? cluster_rank() : 0;
    const int64 stride = int64(gridDim.x) / kCluster;
    int64 row = int64(blockIdx.x) / kCluster;
    uint4* const y_slots = words;
    uint4* const grad_slots = y_slots + kThreads * kSlots;
    __shared__ Sums::Shared shared;
    const uint4 zero = make_uint4(0, 0, 0, 0);

    const Input *y_row, *grad_row;
    Part part;
    Compute next_y = 0, next_grad = 0;
    const auto turn_to = [&](int64 r) {
        y_row = y + (r < rows ? y_map(r) : 0);
        grad_row = grad + (r < rows ? grad_map(r) : 0);
        part = share_of_row(y_row, r < rows ? length : 0, rank);
        next_y = edge_element(y_row, part, thread, Compute(0));
        next_grad = edge_element(grad_row, part, thread, Compute(0));
    };
    const auto fetch = [&](int i) {
        copy_whole_words<Input, 1, kGroup>(reinterpret_cast<Input*>(y_slots), y_row, part, i * kGroup + thread, zero);
        if (aligned_with<Input, kElements>(grad_row, part)) {
            copy_whole_words<Input, 1, kGroup>(reinterpret_cast<Input*>(grad_slots), grad_row, part, i * kGroup + thread, zero);
        } else {
            const int word = i * kGroup + thread;
            grad_slots[word] = zero;
            if (part.whole(word)) {
#pragma unroll
                for (int k = 0; k < kElements; ++k)
                    reinterpret_cast<Input*>(grad_slots + word)[k] = grad_row[part.column + word * kElements + k];
            }
        }
    };
    turn_to(row);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) fetch(i);
    copy_async_commit();
    Sums exchange(shared);
    do {
        const Compute y_edge = next_y, grad_edge = next_grad;
        Compute sum = summand(grad_edge, y_edge);
#pragma unroll 1
        for (int first = kSlots * kGroup; first < part.whole_to; first += kBatch * kGroup) {
            uint4 a[kBatch], b[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) load_pair(a[i], b[i], y_row, grad_row, part, first + i * kGroup + thread);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) sum += sum_of_word(b[i], a[i]);
        }
        copy_async_wait<0>();
#pragma unroll 2
        for (int i = 0; i < kSlots; ++i) sum += sum_of_word(grad_slots[i * kGroup + thread], y_slots[i * kGroup + thread]);
        const Part current = part;
        const Input *const current_y = y_row, *const current_grad = grad_row;
        Output* const target_row = dx + row * dx_stride;
        row += stride;
        turn_to(row);
        const Compute record[2] = {lane_sum<32>(sum), 0};
        const Compute* records = exchange.swap(record);
        sum = 0;
        for_my_records<Compute, 2>(records, [&](const Compute* r) { sum += r[0]; });
        sum = lane_sum<32>(sum);

        const Target<Output, kElements, kGroup> target(target_row, current, thread);
        const auto write = [&](int i, uint4 g, uint4 r) {
            Compute results[kElements], gradients[kElements];
            unpack_word<Input>(r, results);
            unpack_word<Input>(g, gradients);
#pragma unroll
            for (int k = 0; k < kElements; ++k) results[k] = input_gradient(gradients[k], results[k], sum);
            if (current.whole(i * kGroup + thread)) target.store(i, results);
        };
#pragma unroll 2
        for (int i = 0; i < kSlots; ++i) {
            write(i, grad_slots[i * kGroup + thread], y_slots[i * kGroup + thread]);
            fetch(i);
        }
        copy_async_commit();
#pragma unroll 1
        for (int first = kSlots * kGroup; first < current.whole_to; first += kBatch * kGroup) {
            uint4 a[kBatch], b[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                load_pair(a[i], b[i], current_y, current_grad, current, first + i * kGroup + thread);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) write(first / kGroup + i, b[i], a[i]);
        }
        const int position = edge_position<Input>(current, thread);
        if (position >= 0)
            target_row[current.column + position] = Narrow<Output>::one(input_gradient(grad_edge, y_edge, sum));
    } while (row < rows);
}
