// What CUDA C++ has and C++ has not: included before a kernel's source.
#pragma once
#include <utility>

#include "instructions.h"
#include "machine.h"

#define __CUDA_ARCH__ 900
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

#define threadIdx (emulator::thread_index)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Functions of numbers, of either precision by one name.
#define EMULATED_FUNCTION(name)                                    \
    inline float name(float x) { return __builtin_##name##f(x); } \
    extern "C" double name(double);
EMULATED_FUNCTION(log)
EMULATED_FUNCTION(log1p)
EMULATED_FUNCTION(exp)
EMULATED_FUNCTION(expm1)
EMULATED_FUNCTION(fabs)
EMULATED_FUNCTION(sqrt)
EMULATED_FUNCTION(tanh)
#undef EMULATED_FUNCTION
extern "C" {
float fabsf(float);
float fminf(float, float);
float fmaxf(float, float);
float copysignf(float, float);
float logf(float);
float log1pf(float);
float expf(float);
float expm1f(float);
double fmin(double, double);
double fmax(double, double);
double copysign(double, double);
}
template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }

inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline double __hiloint2double(int high, int low) {
    return __builtin_bit_cast(double, static_cast<unsigned long long>(unsigned(high)) << 32 | unsigned(low));
}
inline int __double2loint(double x) { return int(__builtin_bit_cast(unsigned long long, x)); }
inline int __double2hiint(double x) { return int(__builtin_bit_cast(unsigned long long, x) >> 32); }
inline float __double2float_rz(double x) {  // towards zero
    const float nearest = float(x);
    if (!(__builtin_fabs(double(nearest)) > __builtin_fabs(x))) return nearest;
    return __uint_as_float(__float_as_uint(nearest) - 1);
}

inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// Volatile: no product that is to be rounded becomes part of a fused multiply-add.
inline float __fmul_rn(float a, float b) { volatile float product = a * b; return product; }
inline double __dmul_rn(double a, double b) { volatile double product = a * b; return product; }

template <class T> inline T __ldcg(const T* from) { return *from; }
template <class T> inline T __ldg(const T* from) { return *from; }
template <class T> inline void __stcs(T* to, T value) { *to = value; }
template <class T> inline T atomicAdd(T* to, T value) { const T before = *to; *to += value; return before; }

namespace emulator {

template <class T>
T shuffle(unsigned lanes, T value, int from) {
    static_assert(sizeof(T) <= 8);
    uint64 bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    const uint64* const all = exchange(lanes, bits);
    if (!(lanes >> from & 1)) fail("a shuffle from a lane that takes no part");
    __builtin_memcpy(&value, all + from, sizeof(T));
    return value;
}

inline unsigned votes(unsigned lanes, bool vote) {
    const uint64* const all = exchange(lanes, vote);
    unsigned found = 0;
    for (int lane = 0; lane < 32; ++lane) found |= unsigned((lanes >> lane & 1) && all[lane]) << lane;
    return found;
}

inline int lane() { return int(thread_index.x % 32); }

// A kernel's parameter from the eight bytes that a launch passes: launch.py says how.
template <class T>
T parameter(const unsigned long long* bits) {
    static_assert(sizeof(T) <= 8 && !__is_same(T, float), "numbers travel as 64-bit integers and double");
    T value;
    __builtin_memcpy(&value, bits, sizeof(T));
    return value;
}

template <class... Parameters, std::size_t... INDEX>
void call(void (*kernel)(Parameters...), const unsigned long long* arguments, std::index_sequence<INDEX...>) {
    kernel(parameter<Parameters>(arguments + INDEX)...);
}
template <class... Parameters>
void call(void (*kernel)(Parameters...), const unsigned long long* arguments) {
    call(kernel, arguments, std::index_sequence_for<Parameters...>());
}
template <class... Parameters>
constexpr int count_of(void (*)(Parameters...)) { return sizeof...(Parameters); }

}  // namespace emulator

// Within neighbouring lanes, `width` of them; a lane that would look beyond gets its own.
template <class T> inline T __shfl_sync(unsigned lanes, T x, int from, int width = 32) {
    return emulator::shuffle(lanes, x, (emulator::lane() & -width) + (from & (width - 1)));
}
template <class T> inline T __shfl_xor_sync(unsigned lanes, T x, int step, int width = 32) {
    const int lane = emulator::lane(), from = lane ^ step;
    return emulator::shuffle(lanes, x, from < (lane & -width) + width ? from : lane);
}
template <class T> inline T __shfl_down_sync(unsigned lanes, T x, int step, int width = 32) {
    const int lane = emulator::lane(), from = lane + step;
    return emulator::shuffle(lanes, x, from < (lane & -width) + width ? from : lane);
}
template <class T> inline T __shfl_up_sync(unsigned lanes, T x, int step, int width = 32) {
    const int lane = emulator::lane(), from = lane - step;
    return emulator::shuffle(lanes, x, from >= (lane & -width) ? from : lane);
}
inline unsigned __ballot_sync(unsigned lanes, bool vote) { return emulator::votes(lanes, vote); }
inline bool __all_sync(unsigned lanes, bool vote) { return emulator::votes(lanes, vote) == lanes; }
inline bool __any_sync(unsigned lanes, bool vote) { return emulator::votes(lanes, vote) != 0; }
inline void __syncwarp(unsigned lanes = 0xffffffffu) { emulator::exchange(lanes, 0); }
inline int __syncthreads_count(bool vote) { return emulator::meet(0, int(blockDim.x), vote); }
inline bool __syncthreads_or(bool vote) { return __syncthreads_count(vote) != 0; }
inline bool __syncthreads_and(bool vote) { return __syncthreads_count(vote) == int(blockDim.x); }
inline void __syncthreads() { __syncthreads_count(false); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline std::size_t __cvta_generic_to_shared(const void* pointer) { return emulator::shared_address(pointer); }

// Behind a kernel's source, once for each of its entries: the function that launches it.
#define EMULATED_ENTRY(name)                                                                               \
    extern "C" __attribute__((visibility("default"))) const char* emulate_##name(                          \
        const emulator::Launch* launch, const unsigned long long* arguments, int count) {                  \
        if (count != emulator::count_of(name)) return "the kernel has another number of parameters";       \
        const auto thread = [](const void* given) {                                                        \
            emulator::call(name, static_cast<const unsigned long long*>(given));                           \
        };                                                                                                 \
        return emulator::run(*launch, thread, arguments);                                                  \
    }

// NVRTC has checked them, where they are needed; g++ would check those of templates that nobody instantiates too.
#define static_assert(...)
