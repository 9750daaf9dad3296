// naive: the maximum, then the sum of exp(x - maximum), then the division; one thread a row.
//
// Changes from unsafe: the maximum is found first and subtracted, so nothing overflows.  That costs a third read.  The
// GPU has room for some 270 000 threads and gets one a row; and the 32 threads of a warp read 32 addresses that lie a
// whole row apart, so that each load is 32 transactions instead of one.  The sum is kept in double, because one long
// sum in float would stop growing.
#include "rung.cuh"

using namespace online_softmax;
using namespace online_softmax::ladder;

RUNG {
    const Index row = blockIdx.x * Index(blockDim.x) + threadIdx.x;
    if (row >= rows) return;
    const Element* x = logits + row * columns;
    Element* y = result + row * columns;

    Number m = negative_infinity<Number>();
    for (Index i = 0; i < columns; ++i) {  // read 1
        const Number v = widen(x[i]);
        m = v > m ? v : m;
    }

    double sum = 0;
    for (Index i = 0; i < columns; ++i) sum += Exp()(widen(x[i]) - m);  // read 2

    const Number s = Number(sum);
    for (Index i = 0; i < columns; ++i) y[i] = narrow(Exp()(widen(x[i]) - m) / s);  // read 3
}
