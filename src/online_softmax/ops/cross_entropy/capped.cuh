// A logit after scale and softcap, with two ways to the tangent: near zero an odd polynomial, which needs no special
// function, and elsewhere the general formula.  A warp takes one way for all the words of a chunk.
#pragma once
#include "../../_cuda/words.cuh"
#include "classes.cuh"

namespace online_softmax {

// Capped logits are counted in units of ln 2 where results have 16 bits: a power of two then takes one instruction.
constexpr bool kBinary = sizeof(Input) == 2;
constexpr float kPerUnit = kBinary ? kLn2 : 1.0f;

__device__ __forceinline__ float exponential_of_units(float d) {
    if constexpr (kBinary) return exp2_fast(d);
    else return Exp()(d);
}
struct ExpOfUnits {
    __device__ __forceinline__ float operator()(float d) const { return exponential_of_units(d); }
};

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

struct CappedLogit {
    float value;  // x, in units
    float slope;  // its derivative by the scaled logit, x in natural units
};

// Numbers come in pairs of 32 bits, which instructions take straight from where the kernel's arguments lie.
struct Capped {
    float2 scale_amplitude;   // and softcap in units
    float2 inverses;          // scale / softcap, and 1 / amplitude^2
    float2 terms_0, terms_1;  // of x / logit in powers of logit^2, behind the leading one: scale and softcap are in them
    float2 near_lead;         // the largest |logit| that the polynomial serves, and its leading term

    // NEAR: within two units in the last place.
    template <bool NEAR>
    __device__ __forceinline__ CappedLogit of(float raw) const {
        if constexpr (NEAR) {
            const float square = raw * raw;
            float sum = __fmaf_rn(square, terms_1.y, terms_1.x);
            sum = __fmaf_rn(square, sum, terms_0.y);
            sum = __fmaf_rn(square, sum, terms_0.x);
            float x;
            if constexpr (kBinary) x = product(raw, __fmaf_rn(square, sum, near_lead.y));
            else x = __fmaf_rn(raw * square, sum, kScaled ? product(raw, near_lead.y) : raw);
            return {x, slope_at(x)};
        } else {
            const Tangent<float> tangent = hyperbolic_tangent(raw * inverses.x);
            return {product(scale_amplitude.y, tangent.value), tangent.slope};
        }
    }
    // Of a single one, by its own size.
    __device__ __forceinline__ CappedLogit alone(float raw) const {
        return fabsf(raw) <= near_lead.x ? of<true>(raw) : of<false>(raw);
    }
    __device__ __forceinline__ float slope_at(float x) const { return __fmaf_rn(-(x * inverses.y), x, 1.0f); }
};

}  // namespace online_softmax
