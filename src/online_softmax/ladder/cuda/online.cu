// online: maximum and sum in one read of the row.
//
// Changes from three-pass: every thread keeps its own state (m, s), and when the next eight elements exceed m corrects
// the sum it has by s * exp(m - m').  The states of a warp are merged by shuffles, those of the warps through shared memory
// (summarise.cuh).  Two reads of the row instead of three: a third of the reading saved where the row comes from memory.
#include "summarise.cuh"

using namespace online_softmax;
using namespace online_softmax::ladder;

BLOCK_RUNG {
    const Element* x = logits + blockIdx.x * columns;
    Element* y = result + blockIdx.x * columns;

    const State<Number> state = summarise(x, columns);  // read 1

    const Number over_s = 1 / (state.s + (state.m - state.m));  // infinite m: the whole row is NaN, as everywhere
    for_my_columns(x, columns, [&](Index i, const Number* x, int count) {  // read 2
        for (int k = 0; k < count; ++k) store(y + i + k * kBlock, Exp()(x[k] - state.m) * over_s);
    });
}
