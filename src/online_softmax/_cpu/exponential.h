// exp and tanh for float and double, written so that a compiler vectorises the loop they stand in.
//
// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2, and exp(r) = 1 + r + r^2 q(r).  The coefficients of q
// interpolate (exp(r) - 1 - r) / r^2 at Chebyshev nodes; their error is a fifth of a unit in the last place.
// Every product and sum is either exact or named (multiply_add), and the compiler may not fuse others: the same
// element gives the same bits in a vector, in the scalar end of a loop, in a row and in a column.
#pragma once

#include <bit>
#include <cstdint>

#include "../state/state.h"

namespace online_softmax {
namespace {  // one copy a translation unit: each is compiled once per instruction set

#define ONLINE_SOFTMAX_INLINE inline __attribute__((always_inline))

ONLINE_SOFTMAX_INLINE float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;  // a library call otherwise
#endif
}

ONLINE_SOFTMAX_INLINE double multiply_add(double a, double b, double c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

template <class T>
struct Exponential;  // the numbers of one format

template <>
struct Exponential<float> {
    using Bits = std::int32_t;
    static constexpr int mantissa = 23, bias = 127;
    static constexpr float rounder = 0x1.8p23f + bias;  // adding it leaves round(x) + bias in the low bits
    static constexpr float lowest = -87.336544f;        // ln of the smallest normal: below it the result is 0
    static constexpr float zero = -88.0f;               // rounds to n = -bias, whose 2^n has the bits of 0
    static constexpr float per_ln2 = 1.4426950408889634f, per_ln2_low = 1.9259630e-8f;
    static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 1.4286068203094173e-6f;  // n * ln2_high is exact
    static ONLINE_SOFTMAX_INLINE float q(float r) {
        float q = 1.392692661e-3f;
        q = multiply_add(q, r, 8.363773874e-3f);
        q = multiply_add(q, r, 4.166655011e-2f);
        q = multiply_add(q, r, 1.666657338e-1f);
        return multiply_add(q, r, 0.5f);
    }
};

template <>
struct Exponential<double> {
    using Bits = std::int64_t;
    static constexpr int mantissa = 52, bias = 1023;
    static constexpr double rounder = 0x1.8p52 + bias;
    static constexpr double lowest = -708.39641853226408;
    static constexpr double zero = -709.0;
    static constexpr double per_ln2 = 1.4426950408889634074;
    static constexpr double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    static ONLINE_SOFTMAX_INLINE double q(double r) {
        double q = 2.51013469283503402e-8;
        q = multiply_add(q, r, 2.76213386691429238e-7);
        q = multiply_add(q, r, 2.75572664186123037e-6);
        q = multiply_add(q, r, 2.48015186413959936e-5);
        q = multiply_add(q, r, 1.98412698643805133e-4);
        q = multiply_add(q, r, 1.38888889189391678e-3);
        q = multiply_add(q, r, 8.33333333332979350e-3);
        q = multiply_add(q, r, 4.16666666666206386e-2);
        q = multiply_add(q, r, 1.66666666666666675e-1);
        return multiply_add(q, r, 0.5);
    }
};

// exp(x) = scale + scale * rest, rest = exp(r) - 1.
template <class T>
struct Split {
    T scale, rest;
};

template <class T>
ONLINE_SOFTMAX_INLINE Split<T> split_exponential(T x) {
    using E = Exponential<T>;
    using Bits = typename E::Bits;
    const T shifted = multiply_add(x, E::per_ln2, E::rounder);
    const T n = shifted - E::rounder;
    const T r = multiply_add(n, -E::ln2_low, multiply_add(n, -E::ln2_high, x));
    return {std::bit_cast<T>(std::bit_cast<Bits>(shifted) << E::mantissa), multiply_add(r * r, E::q(r), r)};
}

// For x up to a little above 0, which is all that softmax asks for.  0 below the smallest normal, NaN for NaN.
template <class T>
ONLINE_SOFTMAX_INLINE T exponential(T x) {
    using E = Exponential<T>;
    const Split<T> e = split_exponential(x < E::lowest ? E::zero : x);
    return multiply_add(e.scale, e.rest, e.scale);
}

// sum + exp(x), for x up to 0 and a sum beside which terms below the smallest normal do not count.  What a sum needs of
// a term is less than what an output needs: 2^r comes from a polynomial of degree 5 (1.6e-7 off at most), and its last
// product is fused with the addition.  Three quarters of exponential()'s instructions.
ONLINE_SOFTMAX_INLINE float add_exponential(float sum, float x) {
    using E = Exponential<float>;
    const float shifted = multiply_add(x, E::per_ln2, E::rounder);
    const float high = multiply_add(x, E::per_ln2, E::rounder - shifted);
    const float r = multiply_add(x, E::per_ln2_low, high);  // terms far below the maximum keep their digits
    float power = 1.3264727e-3f;
    power = multiply_add(power, r, 9.671513e-3f);
    power = multiply_add(power, r, 5.5507336e-2f);
    power = multiply_add(power, r, 0.24022242f);
    power = multiply_add(power, r, 0.693147f);
    power = multiply_add(power, r, 1.0f);
    const float scale = std::bit_cast<float>(std::bit_cast<E::Bits>(shifted) << E::mantissa);
    const float more = multiply_add(scale, power, sum);
    return x < E::zero ? sum : more;
}

ONLINE_SOFTMAX_INLINE double add_exponential(double sum, double x) {
    return sum + exponential(x);
}

// For any x; from 2^127 (double: 2^1023) on it stays there.
template <class T>
ONLINE_SOFTMAX_INLINE T exponential_up_to_limit(T x) {
    constexpr T limit = Exponential<T>::bias / Exponential<T>::per_ln2;
    return exponential(x > limit ? limit : x);
}

// For x >= 0 and e = exp(-2x) - 1: tanh(x) = -e / (2 + e), which keeps every digit near 0, and 1 - 2 (e + 1) / (2 + e),
// which is as good as correctly rounded near 1, where capped logits that lie close together must stay apart.
template <class T>
ONLINE_SOFTMAX_INLINE T hyperbolic_tangent(T x) {
    constexpr T saturated = T(20);  // tanh rounds to 1 before
    const T size = x < T(0) ? -x : x;
    const Split<T> s = split_exponential(T(-2) * (size > saturated ? saturated : size));
    const T e = multiply_add(s.scale, s.rest, s.scale - T(1));
    const bool large = size > T(0.5);
    const T power = multiply_add(s.scale, s.rest, s.scale);
    const T quotient = (large ? T(2) * power : -e) / (T(2) + e);
    const T value = large ? T(1) - quotient : quotient;
    return x < T(0) ? -value : value;
}

struct Exp {  // for state.h
    template <class T>
    ONLINE_SOFTMAX_INLINE T operator()(T x) const {
        return exponential(x);
    }
};

}  // namespace
}  // namespace online_softmax
