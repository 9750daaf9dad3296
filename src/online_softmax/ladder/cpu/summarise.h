// The state of a row, block by block: what online.cpp is about, and what fused.cpp builds on.
#pragma once

#include <algorithm>

#include "rung.h"

namespace online_softmax::ladder {
namespace {

// The state of one block, which is small enough to stay in the first cache between the two loops.
template <class T>
State<T> of_block(const T* x, Index count) {
    T m = negative_infinity<T>();
#pragma omp simd reduction(max : m)
    for (Index i = 0; i < count; ++i) m = x[i] > m ? x[i] : m;

    // A block of nothing but -inf adds nothing: subtracting its maximum would make NaN.
    const T shift = m == negative_infinity<T>() ? T(0) : m;
    T s = 0;
#pragma omp simd reduction(+ : s)
    for (Index i = 0; i < count; ++i) s += exponential(x[i] - shift);
    return {m, s};
}

template <class T>
State<double> summarise(const T* x, Index columns) {
    State<double> state = empty_state<double>();
    for (Index begin = 0; begin < columns; begin += block_elements) {
        const State<T> block = of_block(x + begin, std::min(block_elements, columns - begin));
        state = merge(state, State<double>{block.m, block.s}, Exp());
    }
    return state;
}

}  // namespace
}  // namespace online_softmax::ladder
