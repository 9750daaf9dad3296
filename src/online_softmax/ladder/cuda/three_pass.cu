// three-pass: the same three sweeps, a whole block of threads on each row.
//
// Changes from naive: thread t takes elements t, t + 1024, t + 2048, ..., so that a warp's 32 threads read 32
// neighbours in one transaction, and each row has 1024 threads' loads in flight.  The threads' maxima, and then their
// sums, are combined by shuffles inside a warp and through shared memory between warps.  Still three reads.
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

RUNG {
    const Element* x = logits + blockIdx.x * columns;
    Element* y = result + blockIdx.x * columns;

    Number m = negative_infinity<Number>();
    for (Index i = threadIdx.x; i < columns; i += blockDim.x) {  // read 1
        const Number v = widen(x[i]);
        m = v > m ? v : m;
    }
    m = over_block(m, negative_infinity<Number>(), [](Number a, Number b) { return a > b ? a : b; });

    Number s = 0;
    for (Index i = threadIdx.x; i < columns; i += blockDim.x) s += Exp()(widen(x[i]) - m);  // read 2
    s = over_block(s, Number(0), [](Number a, Number b) { return a + b; });

    for (Index i = threadIdx.x; i < columns; i += blockDim.x) y[i] = narrow(Exp()(widen(x[i]) - m) / s);  // read 3
}
