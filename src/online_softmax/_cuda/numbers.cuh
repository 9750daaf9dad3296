// Number types of arrays, and how 16 bytes of them become numbers to compute with and back.
// Nothing is included from a toolkit: a user who has the driver and NVRTC has everything.
#pragma once
#include "../state/state.h"

namespace online_softmax {

using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;
using int64 = long long;

struct float16 { uint16 bits; };
struct bfloat16 { uint16 bits; };

template <class T> constexpr int kPerWord = 16 / sizeof(T);  // elements in 16 bytes, one "word" everywhere in these files

template <class A> __device__ constexpr A infinity() { return -negative_infinity<A>(); }
template <class A> __device__ __forceinline__ A not_a_number() { return A(__int_as_float(0x7fffffff)); }
template <class A> __device__ __forceinline__ bool is_nan(A x) { return x != x; }
template <class A> __device__ __forceinline__ bool is_finite(A x) { return x - x == A(0); }

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(bfloat16 x) { return __uint_as_float(uint32(x.bits) << 16); }
__device__ __forceinline__ float widen(float16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}

// A double on its way to 16 bits: rounded to odd, so that the second rounding is the only one that counts.
__device__ __forceinline__ float round_to_odd(double x) {
    const float toward_zero = __double2float_rz(x);
    const bool inexact = double(toward_zero) != x && x == x;
    return inexact ? __uint_as_float(__float_as_uint(toward_zero) | 1u) : toward_zero;
}
__device__ __forceinline__ float for_sixteen_bits(float x) { return x; }
__device__ __forceinline__ float for_sixteen_bits(double x) { return round_to_odd(x); }

template <class T> struct Narrow;
template <> struct Narrow<float> {
    template <class A> __device__ __forceinline__ static float one(A x) { return float(x); }
};
template <> struct Narrow<double> {
    template <class A> __device__ __forceinline__ static double one(A x) { return double(x); }
};
template <> struct Narrow<float16> {
    template <class A> __device__ __forceinline__ static float16 one(A x) {
        float16 narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(for_sixteen_bits(x)));
        return narrow;
    }
    template <class A> __device__ __forceinline__ static uint32 two(A low, A high) {
        uint32 pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(for_sixteen_bits(high)), "f"(for_sixteen_bits(low)));
        return pair;
    }
};
template <> struct Narrow<bfloat16> {
    template <class A> __device__ __forceinline__ static bfloat16 one(A x) {
        bfloat16 narrow;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(for_sixteen_bits(x)));
        return narrow;
    }
    template <class A> __device__ __forceinline__ static uint32 two(A low, A high) {
        uint32 pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(for_sixteen_bits(high)), "f"(for_sixteen_bits(low)));
        return pair;
    }
};

// COUNT consecutive elements in registers, moved in the widest pieces their size allows.
template <class T, int COUNT>
struct alignas(COUNT * sizeof(T) < 16 ? COUNT * sizeof(T) : 16) Pack { T at[COUNT]; };

template <class T, int COUNT, class A>
__device__ __forceinline__ void unpack(const Pack<T, COUNT>& pack, A* values) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) values[k] = A(widen(pack.at[k]));
}

template <class T, int COUNT, class A>
__device__ __forceinline__ Pack<T, COUNT> pack_values(const A* values) {
    Pack<T, COUNT> pack;
    if constexpr (sizeof(T) == 2 && COUNT % 2 == 0) {
#pragma unroll
        for (int k = 0; k < COUNT; k += 2) {
            const uint32 pair = Narrow<T>::two(values[k], values[k + 1]);
            pack.at[k].bits = uint16(pair);
            pack.at[k + 1].bits = uint16(pair >> 16);
        }
    } else {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) pack.at[k] = Narrow<T>::one(values[k]);
    }
    return pack;
}

}  // namespace online_softmax
