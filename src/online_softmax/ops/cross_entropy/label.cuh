// The class that a row's label names, and which thread has its logit.
#pragma once
#include "../../_cuda/words.cuh"
#include "classes.cuh"

namespace online_softmax {

constexpr int kIgnored = -1, kUnknown = -2;  // instead of a class

__device__ __forceinline__ int class_of(int64 label, int64 ignore_index, int classes) {
    if (label == ignore_index) return kIgnored;
    return label >= 0 && label < classes ? int(label) : kUnknown;
}

// Whether the element at this position is in a word, or is an edge, of this thread.
__device__ __forceinline__ bool is_mine(const Part& part, int at) {
    if (!part.holds(at)) return false;
    const int word = at / kElements;
    return part.whole(word) ? word % kThreads == int(threadIdx.x) : edge_position<Input>(part, threadIdx.x) == at;
}

}  // namespace online_softmax
