// unsafe: softmax as the formula is written, exp(x) / sum of exp(x); one thread a row.
//
// Two reads of the row, and nothing subtracted.  It is here to show where it breaks: exponentials are kept in the
// array's own dtype, and overflow for x > 88 in fp32 and x > 11 in fp16; infinity / infinity is NaN.
#include "rung.cuh"

using namespace online_softmax;
using namespace online_softmax::ladder;

__device__ Number exponential(Element x) { return widen(narrow(exp(widen(x)))); }

RUNG {
    const Index row = blockIdx.x * Index(blockDim.x) + threadIdx.x;
    if (row >= rows) return;
    const Element* x = logits + row * columns;
    Element* y = result + row * columns;

    double sum = 0;
    for (Index i = 0; i < columns; ++i) sum += exponential(x[i]);  // read 1

    const Number s = Number(sum);
    for (Index i = 0; i < columns; ++i) y[i] = narrow(exponential(x[i]) / s);  // read 2
}
