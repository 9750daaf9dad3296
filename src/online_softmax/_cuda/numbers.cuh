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

// COUNT consecutive elements as they lie in memory, in 32-bit registers.
template <class T, int COUNT>
struct Pack {
    static constexpr int kBytes = COUNT * sizeof(T);
    static constexpr int kAlignment = kBytes < 16 ? kBytes : 16;
    static_assert(kBytes % 4 == 0, "packs move in pieces of 4, 8 or 16 bytes");
    uint32 at[kBytes / 4];

    template <class A>
    __device__ __forceinline__ void unpack(A* values) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if constexpr (sizeof(T) == 2) values[k] = A(widen(T{uint16(k % 2 ? at[k / 2] >> 16 : at[k / 2])}));
            else if constexpr (sizeof(T) == 4) values[k] = A(__uint_as_float(at[k]));
            else values[k] = A(__hiloint2double(int(at[2 * k + 1]), int(at[2 * k])));
        }
    }

    template <class A>
    __device__ __forceinline__ static Pack of(const A* values) {
        Pack pack;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if constexpr (sizeof(T) == 2) {
                if (k % 2 == 0) pack.at[k / 2] = Narrow<T>::two(values[k], values[k + 1]);
            } else if constexpr (sizeof(T) == 4) {
                pack.at[k] = __float_as_uint(float(values[k]));
            } else {
                pack.at[2 * k] = uint32(__double2loint(double(values[k])));
                pack.at[2 * k + 1] = uint32(__double2hiint(double(values[k])));
            }
        }
        return pack;
    }

    __device__ __forceinline__ static Pack of_word(uint4 word) {
        static_assert(kBytes == 16, "words are whole");
        Pack pack;
        pack.at[0] = word.x, pack.at[1] = word.y, pack.at[2] = word.z, pack.at[3] = word.w;
        return pack;
    }
    __device__ __forceinline__ static Pack load(const T* from) { return of_word(*reinterpret_cast<const uint4*>(from)); }

    // In assembly, because the compiler else finds that the element-by-element branch beside it stores the same values
    // and merges the two into 2-byte stores: a third of the speed.
    __device__ __forceinline__ void store(T* to) const {
        if constexpr (kBytes == 4) {
            asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(at[0]) : "memory");
        } else if constexpr (kBytes == 8) {
            asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(at[0]), "r"(at[1]) : "memory");
        } else {
#pragma unroll
            for (int i = 0; i < kBytes / 4; i += 4)
                asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint32*>(to) + i),
                             "r"(at[i]), "r"(at[i + 1]), "r"(at[i + 2]), "r"(at[i + 3])
                             : "memory");
        }
    }
};

}  // namespace online_softmax
