// three-pass: the same three sweeps, each of them vector code.
//
// Changes from naive: `omp simd` lets the compiler keep one maximum and one sum a vector lane, as a GPU keeps one a
// thread, and the exponential is one that vectorises.  On AVX-512 sixteen fp32 elements advance together.  Still three
// reads: this saves arithmetic, not traffic.  The lanes' sums are added up every block, so that no float sum gets long.
#include <algorithm>

#include "rung.h"

namespace online_softmax::ladder {
namespace {

template <class T>
void three_pass(const Matrix<T>& matrix) {
    for (Index row = 0; row < matrix.rows; ++row) {
        const T* x = matrix.logits + row * matrix.columns;
        T* y = matrix.result + row * matrix.columns;

        T m = negative_infinity<T>();
#pragma omp simd reduction(max : m)
        for (Index i = 0; i < matrix.columns; ++i) m = x[i] > m ? x[i] : m;  // read 1

        double sum = 0;
        for (Index begin = 0; begin < matrix.columns; begin += block_elements) {
            const Index end = std::min(begin + block_elements, matrix.columns);
            T part = 0;
#pragma omp simd reduction(+ : part)
            for (Index i = begin; i < end; ++i) part += exponential(x[i] - m);  // read 2
            sum += part;
        }

        const T over_s = static_cast<T>(1 / sum);
#pragma omp simd
        for (Index i = 0; i < matrix.columns; ++i) y[i] = exponential(x[i] - m) * over_s;  // read 3
    }
}

}  // namespace
}  // namespace online_softmax::ladder

ONLINE_SOFTMAX_RUNG(three_pass)
