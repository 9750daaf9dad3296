// Exponential, maximum and reductions over the lanes of a warp, for float and double alike.
#pragma once
#include "numbers.cuh"

namespace online_softmax {

constexpr float kLog2E = 1.4426950408889634f;          // log2(e) rounded to fp32 ...
constexpr float kLog2ELow = 1.925963033500011e-8f;     // ... and what the rounding left out
constexpr float kLn2 = 0.6931471805599453f;

__device__ __forceinline__ float exp2_fast(float x) {  // two units in the last place; results below 2^-126 are 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The larger of two numbers; a NaN, unlike in fmaxf, is larger than all.
__device__ __forceinline__ float maximum(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}
__device__ __forceinline__ double maximum(double a, double b) { return a > b || is_nan(a) ? a : b; }

// exp(d) of a difference d = x - m <= 0.  The subtraction comes first: folding m * log2(e) into one multiply-add
// loses every digit on rows far from zero.
struct FastExp {  // for results that are rounded to 16 bits: the product's rounding, |d| * 2^-24, is below theirs
    static constexpr bool kForSixteenBits = true;
    __device__ __forceinline__ float operator()(float d) const { return exp2_fast(d * kLog2E); }
};

// 1 / s to the last place but one, without the slow path of a division; 0 gives NaN or infinity, NaN gives NaN.
__device__ __forceinline__ float reciprocal(float s) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(s));
    return __fmaf_rn(r, __fmaf_rn(-s, r, 1.0f), r);
}
__device__ __forceinline__ double reciprocal(double s) { return 1 / s; }

struct Exp {
    static constexpr bool kForSixteenBits = false;
    __device__ __forceinline__ float operator()(float d) const {
        d = maximum(d, -200.0f);  // -inf would meet inf below
        const float high = d * kLog2E;
        const float low = __fmaf_rn(d, kLog2ELow, __fmaf_rn(d, kLog2E, -high)) * kLn2;
        const float y = exp2_fast(high);
        return __fmaf_rn(y, low, y);
    }
    __device__ __forceinline__ double operator()(double d) const {
        return d < -708.3964185322641 ? 0.0 : exp(d);  // below the smallest normal number: exactly 0
    }
};

// exp(x - m) of a result: with what rounding the difference leaves out, |x - m| / 2 units and most of the error
// otherwise, unless the result is rounded to 16 bits anyway.
template <class ExpFn>
__device__ __forceinline__ float exponential(float x, float m) {
    if constexpr (ExpFn::kForSixteenBits) return ExpFn()(x - m);
    const float difference = x - m, again = difference + m;
    const float exactly_lost = (x - again) - (m + (difference - again));
    const float lost = difference < -200.0f ? 0.0f : exactly_lost;  // NaN where the difference is -inf
    const float d = maximum(difference, -200.0f);                   // far enough for 0
    const float high = d * kLog2E;
    const float low = __fmaf_rn(d, kLog2ELow, __fmaf_rn(d, kLog2E, -high));
    const float y = exp2_fast(high);
    return __fmaf_rn(y, __fmaf_rn(low, kLn2, lost), y);
}
template <class ExpFn>
__device__ __forceinline__ double exponential(double x, double m) { return ExpFn()(x - m); }

// The maximum and the sum over LANES neighbouring lanes (a power of two), the same bits in each of them.
template <int LANES, class A>
__device__ __forceinline__ A lane_maximum(A x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) x = maximum(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

template <int LANES, class A>
__device__ __forceinline__ A lane_sum(A x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

template <int LANES>
__device__ __forceinline__ int lane_minimum(int x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) x = min(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

}  // namespace online_softmax
