// Between the dtypes of arrays and the dtype of computation (T: float or double), a block of at most a few kilobytes
// at a time, so that converted numbers never leave the first cache.  Rounds to nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "exponential.h"
#include "types.h"

namespace online_softmax {
namespace {

struct Half {
    std::uint16_t bits;
};
struct Brain {  // bfloat16: the upper half of a float
    std::uint16_t bits;
};

ONLINE_SOFTMAX_INLINE float widen(Brain x) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

ONLINE_SOFTMAX_INLINE float widen(Half x) {
    const std::uint32_t sign = (x.bits & 0x8000u) << 16;
    const std::uint32_t size = x.bits & 0x7fffu;
    // The exponent moves from bias 15 to bias 127 by a product, which gets subnormal numbers right too.
    const std::uint32_t moved = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size << 13) * 0x1p112f);
    const std::uint32_t infinite = size >= 0x7c00u ? 0x7f800000u : 0u;  // also NaN, whose mantissa stays
    return std::bit_cast<float>(sign | moved | infinite);
}

ONLINE_SOFTMAX_INLINE float widen(float x) {
    return x;
}
ONLINE_SOFTMAX_INLINE double widen(double x) {
    return x;
}

template <class Out>
Out narrow(float x);

// `narrow` of what is no NaN.
template <class Out>
ONLINE_SOFTMAX_INLINE Out narrow_number(float x) {
    return narrow<Out>(x);
}

template <>
ONLINE_SOFTMAX_INLINE Brain narrow_number<Brain>(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

template <>
ONLINE_SOFTMAX_INLINE Brain narrow<Brain>(float x) {
    const std::uint16_t upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    return x == x ? narrow_number<Brain>(x) : Brain{static_cast<std::uint16_t>(upper | 0x40u)};
}

template <>
ONLINE_SOFTMAX_INLINE Half narrow<Half>(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    const std::uint32_t size = bits & 0x7fffffffu;
    // Normal halves: the exponent's bias, then 13 bits of mantissa rounded away.
    const std::uint32_t normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    // Subnormal halves: adding 1/2 leaves a multiple of 2^-24, rounded by the hardware, in the low bits.
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
    std::uint32_t half = size < 0x38800000u ? tiny : normal;
    half = size >= 0x47800000u ? 0x7c00u : half;  // 65536 and more; 65520 gets there by rounding
    half = size > 0x7f800000u ? 0x7e00u : half;
    return {static_cast<std::uint16_t>(sign | half)};
}

template <>
ONLINE_SOFTMAX_INLINE float narrow<float>(float x) {
    return x;
}

// double to a 16-bit format by way of float, rounded to odd first so that the second rounding sees what was lost.
ONLINE_SOFTMAX_INLINE float round_to_odd(double x) {
    const float nearest = static_cast<float>(x);
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
    const double back = static_cast<double>(nearest);
    const bool inexact = back < x || back > x;
    const bool away = (x < 0 ? -back : back) > (x < 0 ? -x : x);
    // Towards zero, then the last bit set; an even result reached by rounding away steps back by one to an odd one.
    return inexact && (bits & 1u) == 0 ? std::bit_cast<float>(away ? bits - 1u : bits | 1u) : nearest;
}

template <class Out>
ONLINE_SOFTMAX_INLINE Out narrow(double x) {
    if constexpr (sizeof(Out) == 8) {
        return x;
    } else if constexpr (sizeof(Out) == 4) {
        return static_cast<float>(x);
    } else {
        return narrow<Out>(round_to_odd(x));
    }
}

// `stride` counts bytes.  The contiguous case is a loop of its own, which the compiler vectorises.
template <class In, class T>
void load_as(const char* from, std::int64_t stride, std::int64_t count, T* to) {
    if (stride == static_cast<std::int64_t>(sizeof(In))) {
        const In* x = reinterpret_cast<const In*>(from);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(widen(x[i]));
    } else {
        for (std::int64_t i = 0; i < count; ++i) {
            to[i] = static_cast<T>(widen(*reinterpret_cast<const In*>(from + i * stride)));
        }
    }
}

template <class T, class Out>
void store_as(const T* from, std::int64_t count, char* to, std::int64_t stride) {
    if (stride == static_cast<std::int64_t>(sizeof(Out))) {
        Out* y = reinterpret_cast<Out*>(to);
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<Out>(from[i]);
    } else {
        for (std::int64_t i = 0; i < count; ++i) *reinterpret_cast<Out*>(to + i * stride) = narrow<Out>(from[i]);
    }
}

template <class T>
void load(DType dtype, const char* from, std::int64_t stride, std::int64_t count, T* to) {
    switch (dtype) {
        case DType::float16: return load_as<Half>(from, stride, count, to);
        case DType::bfloat16: return load_as<Brain>(from, stride, count, to);
        case DType::float32: return load_as<float>(from, stride, count, to);
        case DType::float64: return load_as<double>(from, stride, count, to);  // to float: given probabilities only
        default: return;
    }
}

template <class T>
void store(DType dtype, const T* from, std::int64_t count, char* to, std::int64_t stride) {
    switch (dtype) {
        case DType::float16: return store_as<T, Half>(from, count, to, stride);
        case DType::bfloat16: return store_as<T, Brain>(from, count, to, stride);
        case DType::float32: return store_as<T, float>(from, count, to, stride);
        case DType::float64:  // what is computed in float is never stored in double
            if constexpr (sizeof(T) == 8) store_as<T, double>(from, count, to, stride);
            return;
        default: return;
    }
}

template <class T>
constexpr DType dtype_of = sizeof(T) == 8 ? DType::float64 : DType::float32;

}  // namespace
}  // namespace online_softmax
