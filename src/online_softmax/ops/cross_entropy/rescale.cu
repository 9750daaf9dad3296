// Multiplies a gradient by one number that only the device knows; when it is 1, as it nearly always is, nothing is
// read and nothing is written.  So a block a multiprocessor is launched, each of whose threads has many words on their way.
#include "../../_cuda/async.cuh"

using namespace online_softmax;

using Element = ELEMENT;
using Compute = COMPUTE;
using Word = Pack<Element, kPerWord<Element>>;
constexpr int kAtOnce = 8;  // words of a thread

extern "C" __global__ void __launch_bounds__(512) rescale(Element* gradient, const Compute* by, int64 count) {
    wait_for_previous_launch();
    const Compute factor = __ldcg(by);  // past the first cache: this launch may have begun before it was written
    if (factor == Compute(1)) return;
    const int64 thread = int64(blockIdx.x) * blockDim.x + threadIdx.x, threads = int64(gridDim.x) * blockDim.x;
    // In place, a gradient may start off 16 bytes: whole words begin after `head` elements.
    const int64 head = min(count, int64((16 - (uint64(gradient) & 15)) % 16 / sizeof(Element)));
    const int64 words = (count - head) / kPerWord<Element>;
    Element* const whole = gradient + head;
    for (int64 first = thread; first < words; first += kAtOnce * threads) {
        Word found[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {  // beyond the last word the first one again, to no effect
            const int64 word = first + i * threads;
            found[i] = Word::load(whole + (word < words ? word : first) * kPerWord<Element>);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int64 word = first + i * threads;
            Compute values[kPerWord<Element>];
            found[i].unpack(values);
#pragma unroll
            for (int k = 0; k < kPerWord<Element>; ++k) values[k] *= factor;
            if (word < words) Word::of(values).store(whole + word * kPerWord<Element>);
        }
    }
    const int64 in_words = words * kPerWord<Element>;
    for (int64 i = thread; i < count - in_words; i += threads) {
        Element* const at = gradient + (i < head ? i : i + in_words);
        *at = Narrow<Element>::one(Compute(widen(*at)) * factor);
    }
}
