// Multiplies a gradient by one number that only the device knows; when it is 1, as it nearly always is, nothing is
// read and nothing is written.
#include "../../_cuda/numbers.cuh"

using namespace online_softmax;

using Element = ELEMENT;
using Compute = COMPUTE;

extern "C" __global__ void __launch_bounds__(512) rescale(Element* gradient, int64 count, const Compute* by) {
    const Compute factor = *by;
    if (factor == Compute(1)) return;
    constexpr int per_word = kPerWord<Element>;
    const int64 thread = int64(blockIdx.x) * blockDim.x + threadIdx.x, threads = int64(gridDim.x) * blockDim.x;
    for (int64 word = thread; word < count / per_word; word += threads) {
        Element* const at = gradient + word * per_word;
        Compute values[per_word];
        Pack<Element, per_word>::load(at).unpack(values);
#pragma unroll
        for (int k = 0; k < per_word; ++k) values[k] *= factor;
        Pack<Element, per_word>::of(values).store(at);
    }
    for (int64 i = count / per_word * per_word + thread; i < count; i += threads)
        gradient[i] = Narrow<Element>::one(Compute(widen(gradient[i])) * factor);
}
