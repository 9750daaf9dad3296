// Loops over one block of a row.  Sums are kept in `lanes` partial sums, element i in lane i % lanes, which are then
// added in halves: an order that depends on the block's length only, and that columns.h follows too, so that a line
// gives the same bits as a row, as a column, and with vectors of any width.
#pragma once

#include <cstdint>

#include "exponential.h"

namespace online_softmax {
namespace {

constexpr std::int64_t block_length = 1024;  // of float: 4 KiB, read from memory once and then found in the first cache
constexpr int lanes = 32;
constexpr std::int64_t piece_length = 32 * block_length;  // what one thread takes of a row that several share

template <class T>
constexpr T infinity = -negative_infinity<T>();

template <class T>
ONLINE_SOFTMAX_INLINE bool is_infinite(T x) {
    return x == infinity<T> || x == -infinity<T>;
}

template <class T>
ONLINE_SOFTMAX_INLINE bool is_finite(T x) {
    return x - x == T(0);
}

// The larger, b when a is NaN.
template <class T>
ONLINE_SOFTMAX_INLINE T larger(T a, T b) {
    return a > b ? a : b;
}

// Partial sums added in halves.
template <class T>
ONLINE_SOFTMAX_INLINE T sum_lanes(T (&lane)[lanes]) {
#pragma GCC unroll 8
    for (int width = lanes / 2; width > 0; width /= 2) {
#pragma omp simd
        for (int j = 0; j < width; ++j) lane[j] += lane[j + width];
    }
    return lane[0];
}

// A block added up: add(sum, i) is `sum` with what element i adds.
template <class T, class Add>
ONLINE_SOFTMAX_INLINE T accumulate_block(std::int64_t count, Add add) {
    alignas(64) T lane[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
#pragma omp simd
        for (int j = 0; j < lanes; ++j) lane[j] = add(lane[j], i + j);  // hot: sum_block
    }
#pragma omp simd
    for (std::int64_t j = 0; j < count - i; ++j) lane[j] = add(lane[j], i + j);
    return sum_lanes(lane);
}

// The sum of value(i) over a block.
template <class T, class Value>
ONLINE_SOFTMAX_INLINE T sum_block(std::int64_t count, Value value) {
    return accumulate_block<T>(count, [=](T sum, std::int64_t i) { return sum + value(i); });
}

// The maximum of a block; NaN is passed over.
template <class T>
T maximum(const T* x, std::int64_t count) {
    T m = -infinity<T>;
#pragma omp simd reduction(max : m)
    for (std::int64_t i = 0; i < count; ++i) m = larger(x[i], m);  // hot: maximum
    return m;
}

// The sum of exp(x - m) over a block whose elements are at most m, as a state keeps it: with m = +inf the number of
// +inf elements, NaN if there is a NaN.
template <class T>
T sum_of_exponentials(const T* x, std::int64_t count, T m) {
    if (is_infinite(m)) {
        return sum_block<T>(count, [=](std::int64_t i) { return x[i] < m ? T(0) : x[i] == m ? T(m > 0) : x[i]; });
    }
    return accumulate_block<T>(count, [=](T sum, std::int64_t i) { return add_exponential(sum, x[i] - m); });
}

// The same, and the exponentials themselves, which may replace x.
template <class T>
T exponentiate(const T* x, std::int64_t count, T m, T* y) {
    if (is_infinite(m)) {
        return sum_block<T>(count, [=](std::int64_t i) { return y[i] = x[i] < m ? T(0) : x[i] == m ? T(m > 0) : x[i]; });
    }
    return sum_block<T>(count, [=](std::int64_t i) { return y[i] = exponential(x[i] - m); });
}

// Both at once, the sum against a given number: exp(x - reference) of elements that may be somewhat larger than it.
template <class T>
State<T> maximum_and_sum(const T* x, std::int64_t count, T reference) {
    alignas(64) T sum[lanes] = {}, top[lanes];
    for (int j = 0; j < lanes; ++j) top[j] = -infinity<T>;
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
#pragma omp simd
        for (int j = 0; j < lanes; ++j) top[j] = larger(x[i + j], top[j]);
#pragma omp simd
        for (int j = 0; j < lanes; ++j) sum[j] = add_exponential(sum[j], x[i + j] - reference);  // hot: maximum and sum
    }
#pragma omp simd
    for (std::int64_t j = 0; j < count - i; ++j) {
        top[j] = larger(x[i + j], top[j]);
        sum[j] = add_exponential(sum[j], x[i + j] - reference);
    }
    return {maximum(top, lanes), sum_lanes(sum)};
}

// The first element equal to m; `count` when there is none.
template <class T>
std::int64_t first_equal(const T* x, std::int64_t count, T m) {
    int first = static_cast<int>(count);
#pragma omp simd reduction(min : first)
    for (int i = 0; i < static_cast<int>(count); ++i) first = x[i] == m && i < first ? i : first;
    return first;
}

template <class T>
std::int64_t first_nan(const T* x, std::int64_t count) {
    std::int64_t i = 0;
    while (i < count && x[i] == x[i]) ++i;
    return i;
}

}  // namespace
}  // namespace online_softmax
