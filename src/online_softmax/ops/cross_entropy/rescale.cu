// Multiplies a gradient by one number that only the device knows; when it is 1, as it nearly always is, nothing is
// read and nothing is written.
#include "../../_cuda/numbers.cuh"

using namespace online_softmax;

using Element = ELEMENT;
using Compute = COMPUTE;

extern "C" __global__ void __launch_bounds__(512) rescale(Element* gradient, const Compute* by, int64 count) {
    const Compute factor = *by;
    if (factor == Compute(1)) return;
    constexpr int per_word = kPerWord<Element>;
    const int64 thread = int64(blockIdx.x) * blockDim.x + threadIdx.x, threads = int64(gridDim.x) * blockDim.x;
    // In place, a gradient may start off 16 bytes: whole words begin after `head` elements.
    const int64 head = min(count, int64((16 - (uint64(gradient) & 15)) % 16 / sizeof(Element)));
    const int64 in_words = (count - head) / per_word * per_word;
    for (int64 i = thread * per_word; i < in_words; i += threads * per_word) {
        Element* const at = gradient + head + i;
        Compute values[per_word];
        Pack<Element, per_word>::load(at).unpack(values);
#pragma unroll
        for (int k = 0; k < per_word; ++k) values[k] *= factor;
        Pack<Element, per_word>::of(values).store(at);
    }
    for (int64 i = thread; i < count - in_words; i += threads) {
        Element* const at = gradient + (i < head ? i : i + in_words);
        *at = Narrow<Element>::one(Compute(widen(*at)) * factor);
    }
}
