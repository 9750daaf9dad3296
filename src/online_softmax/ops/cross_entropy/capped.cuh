// A logit after scale and softcap, with two ways to the tangent: near zero an odd polynomial, which needs no special
// function, and elsewhere the general formula.  A warp takes one way for all it looks at.
#pragma once
#include "../../_cuda/words.cuh"
#include "classes.cuh"

namespace online_softmax {

constexpr bool kSeries = TERMS > 0;  // TERMS of the polynomial: none, four or five

// The least element of COUNT words, or a NaN.
template <class T, int COUNT, class A>
__device__ __forceinline__ A minimum_of_words(const uint4* words) {
    if constexpr (sizeof(T) == 2) {
        const auto lesser = [](uint32 a, uint32 b) {
            uint32 least;
            if constexpr (SameType<T, bfloat16>::value) asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
            else asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
            return least;
        };
        uint32 m = lesser(lesser(words[0].x, words[0].y), lesser(words[0].z, words[0].w));
#pragma unroll
        for (int i = 1; i < COUNT; ++i)
            m = lesser(m, lesser(lesser(words[i].x, words[i].y), lesser(words[i].z, words[i].w)));
        return -maximum(-A(widen(T{uint16(m)})), -A(widen(T{uint16(m >> 16)})));
    } else {
        A least = infinity<A>();
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            A values[kPerWord<T>];
            unpack_word<T>(words[i], values);
#pragma unroll
            for (int k = 0; k < kPerWord<T>; ++k) least = fminf(least, values[k]);  // a NaN shows in the maximum
        }
        return least;
    }
}

// Numbers come in pairs of 32 bits, which instructions take straight from where the kernel's arguments lie.
struct Capped {
    float2 scale_softcap;
    float2 inverses;          // 1 / softcap and 1 / softcap^2
    float2 terms_0, terms_1;  // of tanh(u) / u - 1 in powers of u * u, u = scaled / softcap: softcap's powers are in them
    float2 near;              // one more term, and the largest |scaled| that the polynomial serves: within an ulp

    __device__ __forceinline__ float scaled(float raw) const { return kScaled ? product(raw, scale_softcap.x) : raw; }

    // x, and its derivative by the scaled logit.
    template <bool NEAR>
    __device__ __forceinline__ float value(float scaled, float& slope) const {
        if constexpr (!kSoftcap) return scaled;
        else if constexpr (NEAR) {
            const float square = scaled * scaled;
            float sum = TERMS == 5 ? __fmaf_rn(square, near.x, terms_1.y) : terms_1.y;
            sum = __fmaf_rn(square, sum, terms_1.x);
            sum = __fmaf_rn(square, sum, terms_0.y);
            sum = __fmaf_rn(square, sum, terms_0.x);
            const float x = __fmaf_rn(scaled * square, sum, scaled);
            slope = slope_at(x);
            return x;
        } else {
            const Tangent<float> tangent = hyperbolic_tangent(scaled * inverses.x);
            slope = tangent.slope;
            return product(scale_softcap.y, tangent.value);
        }
    }
    __device__ __forceinline__ float slope_at(float x) const { return __fmaf_rn(-(x * inverses.y), x, 1.0f); }
};

}  // namespace online_softmax
