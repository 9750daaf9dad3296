// naive: the maximum, then the sum of exp(x - maximum), then the division.
//
// Changes from unsafe: the maximum is found first and subtracted, so no exponential exceeds 1 and none overflows.
// That costs a third read of the row.  One element is worked on at a time, with the exp of the C library; the sum is
// kept in double, because one long sum in float would stop growing.
#include "rung.h"

namespace online_softmax::ladder {
namespace {

template <class T>
void naive(const Matrix<T>& matrix) {
    for (Index row = 0; row < matrix.rows; ++row) {
        const T* x = matrix.logits + row * matrix.columns;
        T* y = matrix.result + row * matrix.columns;

        T m = negative_infinity<T>();
        for (Index i = 0; i < matrix.columns; ++i) m = x[i] > m ? x[i] : m;  // read 1

        double sum = 0;
        for (Index i = 0; i < matrix.columns; ++i) sum += std::exp(x[i] - m);  // read 2

        const T s = static_cast<T>(sum);
        for (Index i = 0; i < matrix.columns; ++i) y[i] = std::exp(x[i] - m) / s;  // read 3
    }
}

}  // namespace
}  // namespace online_softmax::ladder

ONLINE_SOFTMAX_RUNG(naive)
