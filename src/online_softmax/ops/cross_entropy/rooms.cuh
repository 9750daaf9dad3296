// A thread's words on their way, in shared memory.
#pragma once
#include "../../_cuda/words.cuh"
#include "capped.cuh"
#include "weights.cuh"

extern __shared__ uint4 words[];

namespace online_softmax {

// One room for each of a thread's words; no other thread looks in.  Capped logits of fp32 take their word's room.
struct Rooms {
    static constexpr bool kCapped = sizeof(Input) == 4;

    __device__ __forceinline__ static uint4& raw(int slot) { return words[slot * kThreads + int(threadIdx.x)]; }

    // A word for which the polynomial serves, and its capped logits.
    __device__ __forceinline__ static void put(int slot, uint4 word, const float (&x)[kElements]) {
        if constexpr (kCapped)
            word = make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
        raw(slot) = word;
    }
    // The capped logits of such a word.
    __device__ __forceinline__ static void get(int slot, const Capped& logit, float (&x)[kElements]) {
        unpack_word<Input>(raw(slot), x);
        if constexpr (kCapped) return;
#pragma unroll
        for (int k = 0; k < kElements; ++k) x[k] = logit.template of<true>(x[k]).value;
    }
};

// The largest and the least logit of those seen; a NaN may show in the largest alone.
struct Extent {
    float largest = -infinity<float>(), least = infinity<float>();

    // Returns whether the polynomial serves all that the warp has in these words.
    template <int COUNT>
    __device__ __forceinline__ bool widen_by(const uint4* some, const Capped& logit) {
        const float high = maximum_of_words<Input, COUNT, float>(some), low = minimum_of_words<Input, COUNT, float>(some);
        largest = maximum(largest, high);
        if constexpr (kScaled) least = fminf(least, low);
        return __all_sync(0xffffffffu, maximum(high, -low) <= logit.near_lead.x);
    }
};

// The capped logits of a word, and the sum of their exponentials.
template <bool NEAR>
__device__ __forceinline__ float sum_of_word(uint4 word, const Capped& logit, float reference, float (&x)[kElements]) {
    unpack_word<Input>(word, x);
    float s = 0;
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
        x[k] = logit.template of<NEAR>(x[k]).value;
        s += exponential_of_units(x[k] - reference);
    }
    return s;
}

// Without a branch, and in the order of the program.  Those of a word that is not wholly the row's are not read, nor used.
__device__ __forceinline__ void load_weights(float (&of)[kElements], const float* from, bool whole) {
#pragma unroll
    for (int k = 0; k < kElements; k += 4)
        asm volatile("{\n.reg .pred whole;\nsetp.ne.b32 whole, %5, 0;\n@whole ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
                     : "=f"(of[k]), "=f"(of[k + 1]), "=f"(of[k + 2]), "=f"(of[k + 3])
                     : "l"(from + k), "r"(int(whole)));
}

__device__ __forceinline__ void store_if(Input* to, const Pack<Input, kElements>& pack, bool whole) {
    asm volatile("{\n.reg .pred whole;\nsetp.ne.b32 whole, %5, 0;\n@whole st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
                 "r"(pack.at[0]), "r"(pack.at[1]), "r"(pack.at[2]), "r"(pack.at[3]), "r"(int(whole))
                 : "memory");
}

}  // namespace online_softmax
