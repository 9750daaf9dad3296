// Gradients of softmax and log_softmax for rows that the lanes of a warp hold.
//   softmax:      dx = y (g - sum(g y))            log_softmax:  dx = g - exp(y) sum(g)
// Both arrays are copied to shared memory, each word read back by the thread that copied it: once for the sum, once
// more for the result, so that registers hold one word at a time and many rows are in flight.
#include "../../_cuda/rows.cuh"
#include "gradient.cuh"

using namespace online_softmax;

static_assert(kWithinWarp && kCluster == 1, "backward_block.cu takes what needs more lanes");

extern __shared__ uint4 words[];

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_backward_rows(const Input* grad, const Input* y, Output* dx, int64 rows, int length, int64 grad_inner,
                      int64 grad_outer_stride, int64 grad_inner_stride, int64 y_inner, int64 y_outer_stride,
                      int64 y_inner_stride, int64 dx_stride) {
    const RowMap grad_map{grad_inner, grad_outer_stride, grad_inner_stride};
    const RowMap y_map{y_inner, y_outer_stride, y_inner_stride};
    const int thread = threadIdx.x % kGroup, group = threadIdx.x / kGroup;
    const int64 row = int64(blockIdx.x) * kRowsPerBlock + group;
    const bool active = row < rows;  // a group beyond the last row goes on with an empty one

    Input* const y_slots = reinterpret_cast<Input*>(words + group * kGroup * kSlots);
    Input* const grad_slots = y_slots + kThreads * kSlots * kElements;
    const Input* y_row = y + (active ? y_map(row) : 0);
    const Part part = share_of_row(y_row, active ? length : 0, 0);
    copy_words_async<Input, kSlots, kGroup>(y_slots, y_row, part, thread);
    copy_words_async<Input, kSlots, kGroup, true>(grad_slots, grad + (active ? grad_map(row) : 0), part, thread);
    copy_async_commit();
    copy_async_wait<0>();

    Compute sum = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
        Compute results[kElements], gradients[kElements], partial = 0;
        load_words<Input, 1, kGroup>(results, y_slots, part, i * kGroup + thread, Compute(0));
        load_words<Input, 1, kGroup>(gradients, grad_slots, part, i * kGroup + thread, Compute(0));
#pragma unroll
        for (int k = 0; k < kElements; ++k) partial += summand(gradients[k], results[k]);
        sum += partial;
    }
    sum = lane_sum<kLanes>(sum);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
        Compute results[kElements], gradients[kElements];
        load_words<Input, 1, kGroup>(results, y_slots, part, i * kGroup + thread, Compute(0));
        load_words<Input, 1, kGroup>(gradients, grad_slots, part, i * kGroup + thread, Compute(0));
        store_words<Output, 1, kElements, kGroup, Compute>(
            dx + row * dx_stride, part, i * kGroup + thread,
            [&](int k, int) { return input_gradient(gradients[k], results[k], sum); });
    }
}
