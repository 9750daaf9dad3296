// The state (m, s) of a row, or of any part of one: its maximum, and the sum of exp(x - m).
// The one definition of "merge" for compiled code: C++ and CUDA C++ both include this file, and it includes nothing.
//
//   empty         = (-inf, 0)
//   merge(a, b)   = (m, a.s * exp(a.m - m) + b.s * exp(b.m - m)),   m = max(a.m, b.m)
//
// merge is associative and commutative, so threads, warps, blocks, shards and devices combine in any order.
// Infinite maxima are handled here and nowhere else: exp(inf - inf) never happens.  A NaN lives in s: a maximum
// ignores it, no guard drops it, and it outlives +inf.
#pragma once

#if defined(__CUDACC__)
#define ONLINE_SOFTMAX_FN __host__ __device__ __forceinline__
#else
#define ONLINE_SOFTMAX_FN inline
#endif

namespace online_softmax {

template <class T>
ONLINE_SOFTMAX_FN constexpr T negative_infinity() {
    return static_cast<T>(__builtin_bit_cast(double, 0xfff0000000000000ull));  // NVRTC has no __builtin_huge_val
}

template <class T>
struct State {
    T m;  // maximum, natural units; -inf when nothing has been seen
    T s;  // sum of exp(x - m); at +inf the number of +inf elements; NaN once a NaN was seen
};

template <class T>
ONLINE_SOFTMAX_FN State<T> empty_state() {
    return {negative_infinity<T>(), T(0)};
}

// The factor that brings a sum kept against maximum `from` to maximum `to` (to >= from): exp(from - to), and 1 when
// they are equal, infinite ones included (exp(0) must be 1, and then no branch is needed).  `exp` is the caller's exponential: exact, fast, or a vector's lane.
template <class T, class Exp>
ONLINE_SOFTMAX_FN T rescale_factor(T from, T to, Exp exp) {
    return exp(from == to ? T(0) : from - to);
}

template <class T, class Exp>
ONLINE_SOFTMAX_FN State<T> merge(State<T> a, State<T> b, Exp exp) {
    const T m = a.m > b.m ? a.m : b.m;
    return {m, a.s * rescale_factor(a.m, m, exp) + b.s * rescale_factor(b.m, m, exp)};
}

// N states at once: take the maximum, rescale each sum once.  The order of addition is the order of `states`.
template <class T, class Exp>
ONLINE_SOFTMAX_FN State<T> merge_all(const State<T>* states, long long count, Exp exp) {
    T m = negative_infinity<T>();
    for (long long i = 0; i < count; ++i) m = states[i].m > m ? states[i].m : m;
    T s = T(0);
    for (long long i = 0; i < count; ++i) s += states[i].s * rescale_factor(states[i].m, m, exp);
    return {m, s};
}

}  // namespace online_softmax
