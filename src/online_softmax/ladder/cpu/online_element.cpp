// online, element by element: maximum and sum in one sweep, the way the algorithm is usually told.
//
// Changes from three-pass: each vector lane keeps its own state (m, s) and merges one element at a time,
// s * exp(m - m') + exp(x - m'); the lanes' states are merged at the end.  One read is saved, two instead of three,
// but each element now costs two exponentials where it cost one.  On a CPU that loses: see online.cpp.
#include <algorithm>

#include "rung.h"

namespace online_softmax::ladder {
namespace {

constexpr Index lanes = 32;

// The state of up to lanes * block_elements elements: no lane's float sum gets longer than a block.
template <class T>
State<double> of_stretch(const T* x, Index count) {
    T m[lanes], s[lanes];
    for (Index lane = 0; lane < lanes; ++lane) m[lane] = negative_infinity<T>(), s[lane] = 0;

    Index begin = 0;
    for (; begin + lanes <= count; begin += lanes) {
#pragma omp simd
        for (Index lane = 0; lane < lanes; ++lane) {
            const State<T> merged = merge(State<T>{m[lane], s[lane]}, State<T>{x[begin + lane], T(1)}, Exp());
            m[lane] = merged.m;
            s[lane] = merged.s;
        }
    }

    State<double> state = empty_state<double>();
    for (; begin < count; ++begin) state = merge(state, State<double>{x[begin], 1}, Exp());
    for (Index lane = 0; lane < lanes; ++lane) state = merge(state, State<double>{m[lane], s[lane]}, Exp());
    return state;
}

template <class T>
void online_element(const Matrix<T>& matrix) {
    for (Index row = 0; row < matrix.rows; ++row) {
        const T* x = matrix.logits + row * matrix.columns;
        T* y = matrix.result + row * matrix.columns;

        State<double> state = empty_state<double>();
        for (Index begin = 0; begin < matrix.columns; begin += lanes * block_elements) {
            const Index count = std::min(lanes * block_elements, matrix.columns - begin);
            state = merge(state, of_stretch(x + begin, count), Exp());  // read 1
        }

        // m - m is 0, or NaN where m is infinite: the whole row is then NaN, as everywhere.
        const T m = static_cast<T>(state.m), over_s = static_cast<T>(1 / (state.s + (state.m - state.m)));
#pragma omp simd
        for (Index i = 0; i < matrix.columns; ++i) y[i] = exponential(x[i] - m) * over_s;  // read 2
    }
}

}  // namespace
}  // namespace online_softmax::ladder

ONLINE_SOFTMAX_RUNG(online_element)
