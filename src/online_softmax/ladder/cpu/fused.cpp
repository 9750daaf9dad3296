// fused: softmax and cross-entropy in one, the probabilities never stored.
//
// Changes from online followed by a loss: the state of the row is all the loss needs, log s - (x_target - m), and the
// gradient, softmax minus one-hot, is formed while the logits are at hand.  Two reads and one write, where online and
// a loss after it read three times and write twice; and no logarithm of a rounded probability.
#include "summarise.h"

namespace online_softmax::ladder {
namespace {

template <class T>
void fused(const Matrix<T>& matrix) {
    for (Index row = 0; row < matrix.rows; ++row) {
        const T* x = matrix.logits + row * matrix.columns;
        T* gradient = matrix.result + row * matrix.columns;
        const Index target = matrix.target[row];

        const State<double> state = summarise(x, matrix.columns);  // read 1
        matrix.loss[row] = static_cast<T>(std::log(state.s) - (x[target] - state.m));

        const T m = static_cast<T>(state.m), over_s = static_cast<T>(1 / state.s);
#pragma omp simd
        for (Index i = 0; i < matrix.columns; ++i) gradient[i] = exponential(x[i] - m) * over_s;  // read 2
        gradient[target] -= 1;
    }
}

}  // namespace
}  // namespace online_softmax::ladder

ONLINE_SOFTMAX_RUNG(fused)
