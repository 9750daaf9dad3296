// Gradients of softmax and log_softmax for rows that a few warps, a block or a cluster keep, as backward.cu: both arrays are
// read once.  A thread takes its words of each array into registers, or half of them: then registers take two words in turn,
// of which the first goes to shared memory as soon as it is summed, and clusters that stay ask for the next row's words as
// soon as the second is written.
#include "../../_cuda/exchange.cuh"
#include "gradient.cuh"

using namespace online_softmax;

constexpr int kHeld = HELD, kKept = kSlots - kHeld;
constexpr bool kInTurn = kKept > 0;  // registers hold the first half of the words, then the second
static_assert(kHeld > 0 && (kKept == 0 || kKept == kHeld), "a thread's words, or half of them");
static_assert(kGroup >= 2 * kElements, "each element of the edges has a thread");
static_assert(!kPersistent || (kInTurn && kGroup == kThreads), "whoever stays has registers to load into");

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
// Where this thread's words of both arrays are.
struct Mine {
    const Input *y, *grad;
    bool alike;  // the gradient's rows lie on the words of the result
    Part part;
    int thread;
    uint64 policy;

    __device__ __forceinline__ Mine(const Place<Input>& here, const Input* grad_row, uint64 policy)
        : y(here.source + here.part.column + here.thread * kElements),
          grad(grad_row + here.part.column + here.thread * kElements),
          alike(aligned_with<Input, kElements>(grad_row, here.part)), part(here.part), thread(here.thread),
          policy(policy) {}
    __device__ __forceinline__ bool whole(int slot) const { return part.whole(slot * kGroup + thread); }
    __device__ __forceinline__ void load(int slot, uint4& of_y, uint4& of_grad) const {
        const uint4 zero = make_uint4(0, 0, 0, 0);
        of_grad = load_if(grad + slot * (kGroup * kElements), whole(slot) && alike, zero, policy);
        of_y = load_if(y + slot * (kGroup * kElements), whole(slot), zero, policy);
    }
    __device__ __forceinline__ uint4 gather(int slot) const {
        return gather_word(grad + slot * (kGroup * kElements), whole(slot));
    }
};

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
softmax_backward_blocks(const Input* grad, const Input* y, Output* dx, int64 rows, int length, int64 grad_inner,
                        int64 grad_outer_stride, int64 grad_inner_stride, int64 y_inner, int64 y_outer_stride,
                        int64 y_inner_stride, int64 dx_stride) {
    const RowMap grad_map{grad_inner, grad_outer_stride, grad_inner_stride};
    const RowMap y_map{y_inner, y_outer_stride, y_inner_stride};
    __shared__ Sums::Shared shared;
    const uint64 policy = policy_of_rows();
    const auto mine_of = [&](const Place<Input>& here) {
        return Mine(here, grad + (here.active ? grad_map(here.row) : 0), policy);
    };
    uint4 held_y[kHeld], held_grad[kHeld];
    Compute next_y, next_grad;
    const auto begin = [&](int ahead) {  // a row's first words are on their way
        const auto here = place(y, rows, length, y_map, ahead);
        const Mine mine = mine_of(here);
#pragma unroll
        for (int i = 0; i < kHeld; ++i) mine.load(i, held_y[i], held_grad[i]);
        if (!mine.alike) {
#pragma unroll
            for (int i = 0; i < kHeld; ++i) held_grad[i] = mine.gather(i);
        }
        next_y = edge_element(here.source, here.part, here.thread, Compute(0));
        next_grad = edge_element(grad + (here.active ? grad_map(here.row) : 0), here.part, here.thread, Compute(0));
    };
    begin(0);
    Sums exchange(shared);

    int ahead = 0;  // rows of a megabyte and more: few
    const int stride = kPersistent ? int(gridDim.x) / kCluster : 0;
    do {
        const Compute y_edge = next_y, grad_edge = next_grad;
        Compute sum = summand(grad_edge, y_edge);
        if constexpr (kInTurn) {
            const Mine mine = mine_of(place(y, rows, length, y_map, ahead));
#pragma unroll
            for (int i = 0; i < kHeld; ++i) {
                sum += sum_of_word(held_grad[i], held_y[i]);
                y_slots()[i * kGroup] = held_y[i], grad_slots()[i * kGroup] = held_grad[i];
                mine.load(kKept + i, held_y[i], held_grad[i]);
                if (!mine.alike) held_grad[i] = mine.gather(kKept + i);
            }
        }
#pragma unroll
        for (int i = 0; i < kHeld; ++i) sum += sum_of_word(held_grad[i], held_y[i]);
        sum = lane_sum<kLanes>(sum);
        if constexpr (!kWithinWarp) {
            const Compute record[2] = {sum, 0};
            const Compute* records = exchange.swap(record);
            sum = 0;
            for_my_records<Compute, 2>(records, [&](const Compute* r) { sum += r[0]; });
            sum = lane_sum<32>(sum);
        }

        const auto here = place(y, rows, length, y_map, ahead);
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
        const auto write_edge = [&] {
            const int position = edge_position<Input>(here.part, here.thread);
            if (position >= 0)
                target_row[here.part.column + position] = Narrow<Output>::one(input_gradient(grad_edge, y_edge, sum));
        };
#pragma unroll
        for (int i = 0; i < kHeld; ++i) write(kKept + i, held_grad[i], held_y[i]);
        if constexpr (kPersistent) {
            write_edge();  // first, so that begin() has its registers
            begin(ahead + stride);
        }
#pragma unroll 2
        for (int j = 0; j < kKept; ++j) write(j, grad_slots()[j * kGroup], y_slots()[j * kGroup]);
        if constexpr (!kPersistent) write_edge();
        ahead += stride;
    } while (kPersistent && int64(blockIdx.x) / kCluster + ahead < rows);
}
