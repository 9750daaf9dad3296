// three-pass: the same three sweeps, a whole block of threads on each row.
//
// Changes from naive: thread t takes elements t, t + 1024, t + 2048, ..., so that a warp's 32 threads read 32
// neighbours in one transaction, and each row has 1024 threads' loads in flight, eight each (rung.cuh).  The threads'
// maxima, and then their sums, are combined by shuffles inside a warp and through shared memory between warps.  One
// division a row instead of one an element.  Still three reads; the second and third find the row in the L2 cache while
// the rows that are being worked on fit there.
#include "rung.cuh"

using namespace online_softmax;
using namespace online_softmax::ladder;

// All threads' values combined; every thread gets the result.
template <class Combine>
__device__ Number over_block(Number value, Number identity, Combine combine) {
    __shared__ Number of_warp[kMostWarps];
    for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
    __syncthreads();  // shared memory may still be read by the reduction before this one
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
    __syncthreads();
    const int warps = blockDim.x / kWarp, lane = threadIdx.x % kWarp;
    value = lane < warps ? of_warp[lane] : identity;
    for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
    return value;
}

BLOCK_RUNG {
    const Element* x = logits + blockIdx.x * columns;
    Element* y = result + blockIdx.x * columns;

    Number m = negative_infinity<Number>();
    for_my_columns(x, columns, [&](Index, const Number* x, int count) {  // read 1
        for (int k = 0; k < count; ++k) m = x[k] > m ? x[k] : m;
    });
    m = over_block(m, negative_infinity<Number>(), [](Number a, Number b) { return a > b ? a : b; });

    Number s = 0;
    for_my_columns(x, columns, [&](Index, const Number* x, int count) {  // read 2
        for (int k = 0; k < count; ++k) s += Exp()(x[k] - m);
    });
    s = over_block(s, Number(0), [](Number a, Number b) { return a + b; });

    const Number over_s = 1 / s;
    for_my_columns(x, columns, [&](Index i, const Number* x, int count) {  // read 3
        for (int k = 0; k < count; ++k) store(y + i + k * kBlock, Exp()(x[k] - m) * over_s);
    });
}
