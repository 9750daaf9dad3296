// unfused loss: cross-entropy and its gradient from probabilities that are already in memory.
//
// What follows a softmax when the two are not fused: probabilities are read back, the loss is -log of the target's, and
// the gradient, probability minus one-hot, is written.  Besides the extra read and write, the loss is infinite as soon
// as the target's probability has rounded to zero.
#include "rung.cuh"

using namespace online_softmax;
using namespace online_softmax::ladder;

RUNG {
    const Element* p = logits + blockIdx.x * columns;  // probabilities, here
    Element* gradient = result + blockIdx.x * columns;
    const Index t = target[blockIdx.x];

    for (Index i = threadIdx.x; i < columns; i += blockDim.x) {
        gradient[i] = i == t ? narrow(widen(p[i]) - 1) : p[i];
    }
    if (threadIdx.x == 0) loss[blockIdx.x] = -log(widen(p[t]));
}
