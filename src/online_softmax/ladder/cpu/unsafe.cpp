// unsafe: softmax as the formula is written, exp(x) / sum of exp(x).
//
// Two reads of the row, and nothing subtracted.  It is here to show where it breaks: exp overflows for x > 88 in fp32
// (x > 709 in fp64), the sum is then infinite, and infinity / infinity is NaN.
#include "rung.h"

namespace online_softmax::ladder {
namespace {

template <class T>
void unsafe(const Matrix<T>& matrix) {
    for (Index row = 0; row < matrix.rows; ++row) {
        const T* x = matrix.logits + row * matrix.columns;
        T* y = matrix.result + row * matrix.columns;

        double sum = 0;
        for (Index i = 0; i < matrix.columns; ++i) sum += std::exp(x[i]);  // read 1

        for (Index i = 0; i < matrix.columns; ++i) y[i] = std::exp(x[i]) / static_cast<T>(sum);  // read 2
    }
}

}  // namespace
}  // namespace online_softmax::ladder

ONLINE_SOFTMAX_RUNG(unsafe)
