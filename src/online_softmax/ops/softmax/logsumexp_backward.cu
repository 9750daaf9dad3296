// dx = grad exp(x - lse): nothing to reduce, so a row is cut into pieces that blocks (or, short rows, lanes of a warp)
// take one by one.  The exception is a row with lse = +inf: its gradient is shared by the k elements that are +inf, and
// each piece counts them over the whole row.
#include "../../_cuda/functions.cuh"
#include "../../_cuda/rows.cuh"

using namespace online_softmax;

using ExpOf = Either<sizeof(Input) == 2, FastExp, Exp>::type;

__device__ Compute count_infinite(const Input* row, int64 length) {
    const int thread = threadIdx.x % kGroup;
    int count = 0;
    for (int64 i = thread; i < length; i += kGroup) count += Compute(widen(row[i])) == infinity<Compute>();
    if constexpr (kWithinWarp) {
        const uint32 group = 0xffffffffu >> (32 - kLanes);  // rows differ: only the lanes of this one take part
        const uint32 lanes = group << (threadIdx.x % 32 / kLanes * kLanes);
        for (int step = kGroup / 2; step > 0; step /= 2) count += __shfl_xor_sync(lanes, count, step);
        return Compute(count);
    } else {
        __shared__ int total;
        if (threadIdx.x == 0) total = 0;
        __syncthreads();
        atomicAdd(&total, count);  // of integers: the order of the additions shows nowhere
        __syncthreads();
        return Compute(total);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
logsumexp_backward_rows(const Compute* grad, const Input* x, const Compute* lse, Output* dx, int64 rows, int64 length,
                        int pieces, int64 x_inner, int64 x_outer_stride, int64 x_inner_stride, int64 dx_stride) {
    const RowMap x_map{x_inner, x_outer_stride, x_inner_stride};
    const int thread = threadIdx.x % kGroup;
    const int64 row = int64(blockIdx.x) / pieces * kRowsPerBlock + threadIdx.x / kGroup;
    if (row >= rows) return;
    const Input* const source = x + x_map(row);
    const int index = int(blockIdx.x % pieces), head = window_head(source);
    constexpr int64 room = int64(kGroup) * kSlots * kElements;
    const int64 offset = index == 0 ? 0 : index * room - head, left = length - offset;
    const Part part = part_of_row<Input>(index == 0 ? head : 0, int(left < room ? left : room), 0, kGroup * kSlots);

    const Compute gradient = grad[row], normaliser = lse[row];
    const bool infinite = normaliser == infinity<Compute>();
    const Compute share = infinite ? gradient / count_infinite(source, length) : gradient;
    Compute values[kValues];
    load_words<Input, kSlots, kGroup>(values, source + offset + part.column, part, thread, Compute(0));
    store_words<Output, kSlots, kElements, kGroup, Compute>(
        dx + row * dx_stride + offset, part, thread, [&](int i, int) -> Compute {
            if (normaliser == -infinity<Compute>()) return 0;
            if (infinite) return values[i] == normaliser ? share : Compute(0);
            return gradient * ExpOf()(values[i] - normaliser);
        });
}
