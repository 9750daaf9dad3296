// unfused loss: cross-entropy and its gradient from probabilities that are already in memory.
//
// What follows a softmax when the two are not fused: probabilities are read back, the loss is -log of the target's, and
// the gradient, probability minus one-hot, is written.  Besides the extra read and write, the loss is infinite as soon
// as the target's probability has rounded to zero.
#include "rung.h"

namespace online_softmax::ladder {
namespace {

// `logits` are the probabilities here.
template <class T>
void loss(const Matrix<T>& matrix) {
    for (Index row = 0; row < matrix.rows; ++row) {
        const T* p = matrix.logits + row * matrix.columns;
        T* gradient = matrix.result + row * matrix.columns;
        const Index target = matrix.target[row];

#pragma omp simd
        for (Index i = 0; i < matrix.columns; ++i) gradient[i] = p[i];
        gradient[target] -= 1;
        matrix.loss[row] = -std::log(p[target]);
    }
}

}  // namespace
}  // namespace online_softmax::ladder

ONLINE_SOFTMAX_RUNG(loss)
