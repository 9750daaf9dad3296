// Rows whose words are all taken alike: a word that is wholly the row's is moved 16 bytes at a time, every other word of a
// thread counts as missing, and the few elements in words that the row shares with its neighbours, its edges, fall to
// one thread each.  So nothing is looked at element by element, wherever the row starts.
#pragma once
#include "functions.cuh"
#include "rows.cuh"

namespace online_softmax {

// A word of elements that count for nothing: -inf in a softmax, 0 in a sum.
template <class T>
__device__ __forceinline__ uint4 word_of_minus_infinity() {
    constexpr uint32 bits = sizeof(T) == 4 ? 0xff800000u : SameType<T, bfloat16>::value ? 0xff80ff80u : 0xfc00fc00u;
    if constexpr (sizeof(T) == 8) return make_uint4(0, 0xfff00000u, 0, 0xfff00000u);
    else return make_uint4(bits, bits, bits, bits);
}

// The position of this thread's element of the edges; -1 if it has none.  The first threads take the word before the
// whole ones, the next the word behind them.
template <class T>
__device__ __forceinline__ int edge_position(const Part& part, int thread) {
    constexpr int per_word = kPerWord<T>;
    if (thread < per_word) return part.whole_from > 0 && part.holds(thread) ? thread : -1;
    const int position = part.whole_to * per_word + thread - per_word;
    return thread < 2 * per_word && position < part.high ? position : -1;
}

template <class T, class A>
__device__ __forceinline__ A edge_element(const T* row, const Part& part, int thread, A missing) {
    const int position = edge_position<T>(part, thread);
    return position >= 0 ? A(widen(row[part.column + position])) : missing;
}

template <class T, class A>
__device__ __forceinline__ void unpack_word(uint4 word, A (&values)[kPerWord<T>]) {
    Pack<T, kPerWord<T>>::of_word(word).unpack(values);
}

// As unpack_word, by other instructions: the compiler, which sees no relation between the two, cannot keep 16-bit words
// unpacked from the first use to the second, in twice the registers.  `nothing` is 0, and the compiler must not know.
template <class T, class A>
__device__ __forceinline__ void unpack_again(uint4 word, A (&values)[kPerWord<T>], uint32 nothing) {
    if constexpr (sizeof(T) == 2) {
        const uint32 at[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if constexpr (SameType<T, bfloat16>::value) {
                uint32 low, high;
                asm("prmt.b32 %0, %1, 0, %2;" : "=r"(low) : "r"(at[k]), "r"(nothing + 0x1044));
                asm("prmt.b32 %0, %1, 0, %2;" : "=r"(high) : "r"(at[k]), "r"(nothing + 0x3244));
                values[2 * k] = A(__uint_as_float(low)), values[2 * k + 1] = A(__uint_as_float(high));
            } else {
                uint32 same;
                asm("prmt.b32 %0, %1, 0, %2;" : "=r"(same) : "r"(at[k]), "r"(nothing + 0x3210));
                values[2 * k] = A(widen(T{uint16(same)})), values[2 * k + 1] = A(widen(T{uint16(same >> 16)}));
            }
        }
    } else {
        unpack_word<T>(word, values);
    }
}
__device__ __forceinline__ uint32 unknown_zero(int64 rows) { return uint32(uint64(rows) >> 62); }

// Sixteen bytes from global memory if `whole`, else `missing`: no branch, and in the order of the program, so that all of a
// thread's loads are under way before the first is needed.
__device__ __forceinline__ uint4 load_if(const void* from, bool whole, uint4 missing, NoPolicy) {
    asm volatile("{\n.reg .pred whole;\nsetp.ne.b32 whole, %5, 0;\n@whole ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(missing.x), "+r"(missing.y), "+r"(missing.z), "+r"(missing.w)
                 : "l"(from), "r"(int(whole)));
    return missing;
}
__device__ __forceinline__ uint4 load_if(const void* from, bool whole, uint4 missing, uint64 policy) {
    asm volatile("{\n.reg .pred whole;\nsetp.ne.b32 whole, %5, 0;\n"
                 "@whole ld.global.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %6;\n}"
                 : "+r"(missing.x), "+r"(missing.y), "+r"(missing.z), "+r"(missing.w)
                 : "l"(from), "r"(int(whole)), "l"(policy));
    return missing;
}

// The first COUNT words of a thread whose first one is at `from`, and the next STEP elements on.
template <int COUNT, int STEP, class T>
__device__ __forceinline__ void load_words(uint4* words, const T* from, const Part& part, uint4 missing, uint64 policy) {
    constexpr int stride = STEP / kPerWord<T>;
    if (part.all_whole<COUNT, stride>(threadIdx.x)) {  // nearly always: nothing to fill in, nothing to ask
#pragma unroll
        for (int i = 0; i < COUNT; ++i) words[i] = load(from + i * STEP, policy);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            words[i] = load_if(from + i * STEP, part.whole(i * stride + int(threadIdx.x)), missing, policy);
    }
}

// A whole word of `row`, or what counts for nothing.
template <class T>
__device__ __forceinline__ uint4 load_word(const T* row, const Part& part, int word, uint4 missing) {
    if (!part.whole(word)) return missing;
    return *reinterpret_cast<const uint4*>(row + part.column + int64(word) * kPerWord<T>);
}

template <class T>
__device__ __forceinline__ uint32 maximum_of_pairs(uint32 a, uint32 b) {
    uint32 larger;
    if constexpr (SameType<T, bfloat16>::value) asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    else asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
}

// The largest element of COUNT words; 16-bit elements are compared two at a time, as they are.
template <class T, int COUNT, class A>
__device__ __forceinline__ A maximum_of_words(const uint4* words) {
    if constexpr (sizeof(T) == 2) {
        uint4 m = words[0];
#pragma unroll
        for (int i = 1; i < COUNT; ++i) {
            m.x = maximum_of_pairs<T>(m.x, words[i].x), m.y = maximum_of_pairs<T>(m.y, words[i].y);
            m.z = maximum_of_pairs<T>(m.z, words[i].z), m.w = maximum_of_pairs<T>(m.w, words[i].w);
        }
        m.x = maximum_of_pairs<T>(maximum_of_pairs<T>(m.x, m.y), maximum_of_pairs<T>(m.z, m.w));
        return maximum(A(widen(T{uint16(m.x)})), A(widen(T{uint16(m.x >> 16)})));
    } else {
        A m[kPerWord<T>];
        unpack_word<T>(words[0], m);
#pragma unroll
        for (int i = 1; i < COUNT; ++i) {
            A values[kPerWord<T>];
            unpack_word<T>(words[i], values);
#pragma unroll
            for (int k = 0; k < kPerWord<T>; ++k) m[k] = maximum(m[k], values[k]);
        }
        A largest = m[0];
#pragma unroll
        for (int k = 1; k < kPerWord<T>; ++k) largest = maximum(largest, m[k]);
        return largest;
    }
}

// Where a thread's results go.  An output whose rows do not start as the input's do is written element by element.
template <class O, int PER_WORD, int STRIDE>
struct Target {
    O* start;  // of this thread's first word
    bool aligned;
    __device__ __forceinline__ Target(O* row, const Part& part, int first)
        : start(row + part.column + first * PER_WORD), aligned(aligned_with<O, PER_WORD>(row, part)) {}
    template <class A>
    __device__ __forceinline__ void store(int slot, const A (&results)[PER_WORD]) const {
        O* const to = start + slot * (STRIDE * PER_WORD);
        if (aligned) {
            Pack<O, PER_WORD>::of(results).store(to);
        } else {
#pragma unroll
            for (int k = 0; k < PER_WORD; ++k) to[k] = Narrow<O>::one(results[k]);
        }
    }
};

}  // namespace online_softmax
