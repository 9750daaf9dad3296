// Gradients of softmax and log_softmax for rows that a few warps, a block or a cluster keep, as backward.cu: both arrays are
// read once.  As in block.cu, a thread takes HELD words of each array into registers and the rest into shared memory.
#include "../../_cuda/exchange.cuh"
#include "gradient.cuh"

using namespace online_softmax;

constexpr int kHeld = HELD, kKept = kSlots - kHeld;
static_assert(kHeld > 0 && kGroup >= 2 * kElements, "each element of the edges has a thread");

using Sums = Exchange<Compute, 2>;  // the sum, and nothing: records are at least eight bytes

extern __shared__ uint4 words[];

__device__ __forceinline__ uint4* y_slots() {  // this thread's, kGroup apart
    return words + threadIdx.x / kGroup * (kGroup * kKept) + threadIdx.x % kGroup;
}
__device__ __forceinline__ uint4* grad_slots() { return y_slots() + kThreads * kKept; }

// A word of a gradient whose rows start off the words of the result.
__device__ __forceinline__ uint4 gather_word(const Input* from, bool whole) {
    union { Input elements[kElements]; uint4 word; } gathered;
    gathered.word = make_uint4(0, 0, 0, 0);
    if (whole) {
#pragma unroll
        for (int k = 0; k < kElements; ++k) gathered.elements[k] = from[k];
    }
    return gathered.word;
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_backward_blocks(const Input* grad, const Input* y, Output* dx, int64 rows, int length, int64 grad_inner,
                        int64 grad_outer_stride, int64 grad_inner_stride, int64 y_inner, int64 y_outer_stride,
                        int64 y_inner_stride, int64 dx_stride) {
    const RowMap grad_map{grad_inner, grad_outer_stride, grad_inner_stride};
    const RowMap y_map{y_inner, y_outer_stride, y_inner_stride};
    const auto [row, active, y_row, rank, thread, part] = place(y, rows, length, y_map);
    const Input* const grad_row = grad + (active ? grad_map(row) : 0);
    const bool alike = aligned_with<Input, kElements>(grad_row, part);
    const uint4 zero = make_uint4(0, 0, 0, 0);
    __shared__ Sums::Shared shared;

    const Input* const y_mine = y_row + part.column + thread * kElements;
    const Input* const grad_mine = grad_row + part.column + thread * kElements;
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
        const int slot = kHeld + j, at = slot * (kGroup * kElements);
        const bool whole = part.whole(slot * kGroup + thread);
        if (whole) copy_async(y_slots() + j * kGroup, y_mine + at);
        else y_slots()[j * kGroup] = zero;
        if (whole && alike) copy_async(grad_slots() + j * kGroup, grad_mine + at);
        else grad_slots()[j * kGroup] = gather_word(grad_mine + at, whole);
    }
    if constexpr (kKept > 0) copy_async_commit();
    uint4 held_y[kHeld], held_grad[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const bool whole = part.whole(i * kGroup + thread);
        held_grad[i] = load_if(grad_mine + i * (kGroup * kElements), whole && alike, zero);
        held_y[i] = load_if(y_mine + i * (kGroup * kElements), whole, zero);
    }
    if (!alike) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i)
            held_grad[i] = gather_word(grad_mine + i * (kGroup * kElements), part.whole(i * kGroup + thread));
    }
    const Compute y_edge = edge_element(y_row, part, thread, Compute(0));
    const Compute grad_edge = edge_element(grad_row, part, thread, Compute(0));
    Sums exchange(shared);

    Compute sum = summand(grad_edge, y_edge);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum += sum_of_word(held_grad[i], held_y[i]);
    if constexpr (kKept > 0) {
        copy_async_wait<0>();
#pragma unroll 2
        for (int j = 0; j < kKept; ++j) sum += sum_of_word(grad_slots()[j * kGroup], y_slots()[j * kGroup]);
    }
    sum = lane_sum<kLanes>(sum);
    if constexpr (!kWithinWarp) {
        const Compute record[2] = {sum, 0};
        const Compute* records = exchange.swap(record);
        sum = 0;
        for_my_records<Compute, 2>(records, [&](const Compute* r) { sum += r[0]; });
        sum = lane_sum<32>(sum);
    }

    const auto here = place(y, rows, length, y_map);
    Output* const target_row = dx + here.row * dx_stride;
    const Target<Output, kElements, kGroup> target(target_row, here.part, here.thread);
    const uint32 nothing = unknown_zero(rows);
    const auto write = [&](int slot, uint4 g, uint4 r) {
        Compute results[kElements], gradients[kElements];
        unpack_again<Input>(r, results, nothing);
        unpack_again<Input>(g, gradients, nothing);
#pragma unroll
        for (int k = 0; k < kElements; ++k) results[k] = input_gradient(gradients[k], results[k], sum);
        if (here.part.whole(slot * kGroup + here.thread)) target.store(slot, results);
    };
#pragma unroll
    for (int i = 0; i < kHeld; ++i) write(i, held_grad[i], held_y[i]);
#pragma unroll 2
    for (int j = 0; j < kKept; ++j) write(kHeld + j, grad_slots()[j * kGroup], y_slots()[j * kGroup]);
    const int position = edge_position<Input>(here.part, here.thread);
    if (position >= 0)
        target_row[here.part.column + position] = Narrow<Output>::one(input_gradient(grad_edge, y_edge, sum));
}
