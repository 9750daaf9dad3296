// The PTX instructions that kernels use, by their names with other signs than letters and digits as underscores: translate.py
// makes a call of each.  One that is missing is an error of the compiler's, by name.
#pragma once
#include "machine.h"

namespace emulator::ptx {

using uint16 = unsigned short;

inline float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x; }
inline float nan() { return __builtin_bit_cast(float, 0x7fffffffu); }

inline float from_bf16(uint16 bits) { return __builtin_bit_cast(float, uint32(bits) << 16); }
inline uint16 to_bf16(float x) {  // to the nearest, ties to even
    const uint32 bits = __builtin_bit_cast(uint32, x);
    return x != x ? 0x7fff : uint16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float from_f16(uint16 bits) { return float(__builtin_bit_cast(_Float16, bits)); }
inline uint16 to_f16(float x) { return x != x ? 0x7fff : __builtin_bit_cast(uint16, _Float16(x)); }

inline void ex2_approx_ftz_f32(float& y, float x) { y = flushed(__builtin_exp2f(flushed(x))); }
inline void rcp_approx_ftz_f32(float& y, float x) { y = flushed(1 / flushed(x)); }
inline void max_NaN_f32(float& larger, float a, float b) { larger = a != a || b != b ? nan() : a > b ? a : b; }
inline void cvt_f32_f16(float& to, uint16 from) { to = from_f16(from); }
inline void cvt_rn_f16_f32(uint16& to, float from) { to = to_f16(from); }
inline void cvt_rn_bf16_f32(uint16& to, float from) { to = to_bf16(from); }
inline void cvt_rn_f16x2_f32(uint32& to, float high, float low) { to = uint32(to_f16(high)) << 16 | to_f16(low); }
inline void cvt_rn_bf16x2_f32(uint32& to, float high, float low) { to = uint32(to_bf16(high)) << 16 | to_bf16(low); }

// Both halves of a and b, `widen` to compare them by.
template <class Widen>
inline uint32 pairs(uint32 a, uint32 b, bool larger, Widen widen) {
    uint32 result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const uint16 first = uint16(a >> shift), second = uint16(b >> shift);
        const float x = widen(first), y = widen(second);
        const bool takes_first = larger ? x > y : x < y;
        result |= uint32(x != x || y != y ? 0x7fff : takes_first ? first : second) << shift;
    }
    return result;
}
inline void max_NaN_bf16x2(uint32& to, uint32 a, uint32 b) { to = pairs(a, b, true, from_bf16); }
inline void min_NaN_bf16x2(uint32& to, uint32 a, uint32 b) { to = pairs(a, b, false, from_bf16); }
inline void max_NaN_f16x2(uint32& to, uint32 a, uint32 b) { to = pairs(a, b, true, from_f16); }
inline void min_NaN_f16x2(uint32& to, uint32 a, uint32 b) { to = pairs(a, b, false, from_f16); }

inline void prmt_b32(uint32& to, uint32 a, uint32 b, uint32 selector) {  // bytes of b:a, one by each four bits
    const uint64 bytes = uint64(b) << 32 | a;
    to = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32 choice = selector >> 4 * i & 15;
        uint32 byte = uint32(bytes >> 8 * (choice & 7)) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        to |= byte << 8 * i;
    }
}
template <class To> inline void mov_u32(To& to, uint32 from) { to = To(from); }
template <class To> inline void mov_s32(To& to, int from) { to = To(from); }
template <class From> inline void setp_ne_b32(bool& to, From a, int b) { to = a != From(b); }

// Global memory.  A GPU refuses words that do not start on their size.
template <int BYTES>
inline void check(const void* address) {
    if (reinterpret_cast<uint64>(address) % BYTES) fail("a word in global memory that does not start on its size");
}
template <class T>
inline void load_four(T& a, T& b, T& c, T& d, const void* from) {
    check<16>(from);
    T word[4];
    __builtin_memcpy(word, from, 16);
    a = word[0], b = word[1], c = word[2], d = word[3];
}
inline void ld_global_v4_b32(uint32& a, uint32& b, uint32& c, uint32& d, const void* from) { load_four(a, b, c, d, from); }
inline void createpolicy_fractional_L2__evict_normal_b64(uint64& policy, double) { policy = 1; }  // caches are not played
inline void createpolicy_fractional_L2__evict_last_b64(uint64& policy, double) { policy = 2; }
inline void ld_global_L2__cache_hint_v4_b32(uint32& a, uint32& b, uint32& c, uint32& d, const void* from, uint64 policy) {
    if (policy != 1 && policy != 2) fail("a cache policy that nothing created");
    load_four(a, b, c, d, from);
}
inline void ld_global_v4_f32(float& a, float& b, float& c, float& d, const void* from) { load_four(a, b, c, d, from); }
template <int COUNT>
inline void st_global(void* to, const uint32 (&words)[COUNT]) {
    check<4 * COUNT>(to);
    __builtin_memcpy(to, words, 4 * COUNT);
}
inline void st_global_b32(void* to, uint32 a) { st_global<1>(to, {a}); }
inline void st_global_v2_b32(void* to, uint32 a, uint32 b) { st_global<2>(to, {a, b}); }
inline void st_global_v4_b32(void* to, uint32 a, uint32 b, uint32 c, uint32 d) { st_global<4>(to, {a, b, c, d}); }

inline void cp_async_cg_shared_global(uint32 to, const void* from, int size, int bytes = 16) {
    if (size != 16) fail("past the first cache there are copies of 16 bytes alone");
    copy_async(to, from, bytes);
}
inline void cp_async_commit_group() { commit_copies(); }
inline void cp_async_wait_group(int pending) { wait_for_copies(pending); }

inline void bar_sync(int barrier, int threads) { meet(barrier, threads, false); }
inline void barrier_cluster_arrive_relaxed_aligned() { cluster_arrive(); }
inline void barrier_cluster_wait_acquire_aligned() { cluster_wait(); }
inline void mbarrier_init_shared__cta_b64(uint32 barrier, int arrivals) { barrier_init(barrier, arrivals); }
inline void fence_mbarrier_init_release_cluster() {}
inline void mbarrier_arrive_expect_tx_shared__cta_b64(uint32 barrier, int bytes) { barrier_expect(barrier, bytes); }
inline void mbarrier_try_wait_parity_acquire_cluster_shared__cta_b64(bool& done, uint32 barrier, int parity) {
    done = barrier_passed(barrier, parity);
}
inline void mapa_shared__cluster_u32(uint32& to, uint32 address, int rank) { to = address_in_block(address, rank); }
inline void st_async_shared__cluster_mbarrier__complete_tx__bytes_b64(uint32 to, uint64 value, uint32 barrier) {
    send(to, value, barrier);
}
inline uint32 cluster_ctarank() { return uint32(rank_in_cluster()); }

inline void griddepcontrol_wait() {}  // launches run one after the other
inline void griddepcontrol_launch_dependents() {}

}  // namespace emulator::ptx
