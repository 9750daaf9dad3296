// What every rung on the CPU includes.  A rung takes whole rows, one after another; Python gives each core its share.
#pragma once

#include <cmath>
#include <cstdint>

#include "../../_cpu/exponential.h"  // exponential(x): exp, written so that a loop around it becomes vector code
#include "../../state/state.h"       // State, empty_state, merge

namespace online_softmax::ladder {

using Index = std::int64_t;

// `rows` rows of `columns` logits.  A softmax writes `result`; a loss reads `target` and writes `loss` and, as its
// gradient, `result`.
template <class T>
struct Matrix {
    const T* logits;
    const Index* target;
    T* result;
    T* loss;
    Index rows, columns;
};

// Sums of up to this many elements are kept in T; longer ones are sums of such sums, in double.
constexpr Index block_elements = 1024;

}  // namespace online_softmax::ladder

// Makes a rung of the template function NAME for float and double, under a name of its own for each instruction set.
#define ONLINE_SOFTMAX_JOIN_(a, b) a##_##b
#define ONLINE_SOFTMAX_JOIN(a, b) ONLINE_SOFTMAX_JOIN_(a, b)
#define ONLINE_SOFTMAX_RUNG(NAME)                                                             \
    namespace online_softmax::ladder {                                                        \
    void ONLINE_SOFTMAX_JOIN(NAME, ONLINE_SOFTMAX_ISA)(const Matrix<float>& m) { NAME(m); }   \
    void ONLINE_SOFTMAX_JOIN(NAME, ONLINE_SOFTMAX_ISA)(const Matrix<double>& m) { NAME(m); }  \
    }
