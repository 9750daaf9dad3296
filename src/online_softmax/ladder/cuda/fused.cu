// fused: softmax and cross-entropy in one, the probabilities never stored.
//
// Changes from online followed by a loss: the state of the row is all the loss needs, log s - (x_target - m), and the
// gradient, softmax minus one-hot, is formed while the logits are at hand.  Two reads and one write, where online and
// a loss after it read three times and write twice; and no logarithm of a rounded probability.
#include "summarise.cuh"

using namespace online_softmax;
using namespace online_softmax::ladder;

BLOCK_RUNG {
    const Element* x = logits + blockIdx.x * columns;
    Element* gradient = result + blockIdx.x * columns;
    const Index t = target[blockIdx.x];

    const State<Number> state = summarise(x, columns);  // read 1
    const Number s = state.s + (state.m - state.m);  // infinite m: loss and gradient are NaN, as everywhere
    if (threadIdx.x == 0) loss[blockIdx.x] = log(s) - (widen(x[t]) - state.m);

    const Number over_s = 1 / s;
    for_my_columns(x, columns, [&](Index i, const Number* x, int count) {  // read 2
        for (int k = 0; k < count; ++k, i += kBlock) {
            const Number p = Exp()(x[k] - state.m) * over_s;
            store(gradient + i, i == t ? p - 1 : p);
        }
    });
}
