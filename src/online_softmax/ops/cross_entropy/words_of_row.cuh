// What is done with some of a thread's words, COUNT of them from word `first` on; a word that is not wholly the row's counts
// for nothing (words.cuh).
#pragma once
#include "../../_cuda/summary.cuh"
#include "../../_cuda/words.cuh"
#include "capped.cuh"
#include "row_loss.cuh"
#include "weights.cuh"

namespace online_softmax {

constexpr int kHeld = HELD, kKept = kSlots - kHeld;  // slots in registers and in shared memory
constexpr int kChunkSlots = CHUNK, kChunks = kKept / kChunkSlots, kChunkWords = kChunkSlots * kThreads;  // of those kept
constexpr bool kMasses = kWeighted && kSpread;
constexpr bool kSelect = kScaled || kSoftcap || kSpread;  // what fills missing words would count for something
constexpr bool kStored = STORED;  // capped logits of fp32 take the place of the logits, and are not made twice
// fp32 words in registers make room for their exponentials.
constexpr bool kExponentials = kKept == 0 && sizeof(Input) == sizeof(Compute) && kGradient && !kSoftcap && !kMasses;
static_assert(kKept % kChunkSlots == 0 && kChunks <= 32 && kGroup == kThreads && !kWithinWarp && !kProbabilities && !kAux);
static_assert(!kStored || (kSoftcap && kHeld == 0 && sizeof(Input) == sizeof(Compute)));

struct WordsOfRow {
    const Capped& logit;
    const WordWeights& weights;
    const Part& part;
    uint32 signs;  // bits that turn the order of logits into the order of x

    __device__ __forceinline__ int word(int first, int slot) const { return first + slot * kThreads + int(threadIdx.x); }
    // Whether the warp has any word of a chunk: words ascend with chunks and lanes.
    __device__ __forceinline__ bool reaches(int first) const { return first + int(threadIdx.x & ~31u) < part.whole_to; }
    template <int COUNT>
    __device__ __forceinline__ bool any(int first) const {
        bool found = !kSelect;  // what is missing is -inf, and may be taken for a logit
#pragma unroll
        for (int i = 0; i < COUNT; ++i) found = found || part.whole(word(first, i));
        return found;
    }

    // The scaled logit of the largest x.  `near` becomes whether the polynomial serves all that the warp holds here.
    template <int COUNT>
    __device__ __forceinline__ Compute top_of(uint4 (&some)[COUNT], bool& near) const {
        uint4 turned[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            turned[i] = some[i];
            if constexpr (kScaled) turned[i].x ^= signs, turned[i].y ^= signs, turned[i].z ^= signs, turned[i].w ^= signs;
        }
        Compute top = maximum_of_words<Input, COUNT, Compute>(turned);
        if constexpr (kScaled) top *= fabsf(logit.scale_softcap.x);
        near = false;
        if constexpr (kSeries) {
            Compute low = minimum_of_words<Input, COUNT, Compute>(turned);
            if constexpr (kScaled) low *= fabsf(logit.scale_softcap.x);
            near = __all_sync(0xffffffffu, maximum(top, -low) <= logit.near.y);
        }
        return top;
    }

    // Adds what the words sum to against `reference`.  They may be replaced by the exponentials, and the capped logits may
    // be `stored`, by the number of the word, in the place of the logits.
    template <bool NEAR, int COUNT>
    __device__ __forceinline__ void add(uint4 (&some)[COUNT], int first, Compute reference, RowSums<Compute>& sums,
                                        uint4* stored) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const bool there = !kSelect || part.whole(word(first, i));
            Compute values[kElements], weight_of[kElements], s = 0, gap = 0, mass = kMasses ? 0 : kElements, slope;
            unpack_word<Input>(some[i], values);
            if constexpr (kMasses) {
                asm volatile("" ::: "memory");  // no word's weights before the last one's are used: they need registers
                weights.load(weight_of, word(first, i), there);
            }
#pragma unroll
            for (int k = 0; k < kElements; ++k) {
                values[k] = logit.value<NEAR>(logit.scaled(values[k]), slope);
                const Compute d = values[k] - reference, y = ExpOf()(d);
                s += y;
                if constexpr (kMasses) {
                    mass += weight_of[k];  // no mass, no part: not even of -inf, which softcap leaves none of
                    gap -= kSoftcap || weight_of[k] != Compute(0) ? weight_of[k] * d : Compute(0);
                } else if constexpr (kSpread) {
                    gap -= d;
                }
                if constexpr (kExponentials) values[k] = y;
            }
            sums.s += there ? s : Compute(0);
            if constexpr (kSpread) sums.gap += there ? gap : Compute(0), sums.mass += there ? mass : Compute(0);
            const auto pack = Pack<Input, kElements>::of(values);
            if constexpr (kExponentials) some[i] = make_uint4(pack.at[0], pack.at[1], pack.at[2], pack.at[3]);
            if constexpr (kStored && NEAR) stored[word(first, i)] = make_uint4(pack.at[0], pack.at[1], pack.at[2], pack.at[3]);
        }
    }

    // Merges a chunk's sums, against the chunk's own maximum; returns whether the polynomial served it.
    template <int COUNT>
    __device__ __forceinline__ bool summarise(uint4 (&some)[COUNT], int first, RowSums<Compute>& sums, uint4* stored) const {
        bool near;
        const Compute top = top_of(some, near);
        const bool found = any<COUNT>(first);
        RowSums<Compute> chunk;
        Compute slope;
        if (kSeries && near) {
            chunk.m = found ? logit.value<true>(top, slope) : -infinity<Compute>();
            add<true>(some, first, chunk.reference(), chunk, stored);
        } else {
            chunk.m = found ? logit.value<false>(top, slope) : -infinity<Compute>();
            add<false>(some, first, chunk.reference(), chunk, stored);
        }
        chunk.become_state();
        sums.absorb<ExpOf>(chunk.record().at);
        return near;
    }

    // exp(x - reference) * factor - push * w, times the slope of x.
    template <bool NEAR, int COUNT, class Target>
    __device__ __forceinline__ void write(uint4 (&some)[COUNT], int first, Compute reference, Compute factor, Compute push,
                                          const Target& target) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const bool there = part.whole(word(first, i));
            Compute values[kElements], weight_of[kElements];
            unpack_word<Input>(some[i], values);
            if constexpr (kMasses) weights.load(weight_of, word(first, i), there);
#pragma unroll
            for (int k = 0; k < kElements; ++k) {
                Compute x = values[k], slope = 1;
                if constexpr (kStored && NEAR) slope = logit.slope_at(x);
                else x = logit.value<NEAR>(logit.scaled(x), slope);
                Compute g = (kExponentials ? values[k] : ExpOf()(x - reference)) * factor;
                if constexpr (kSpread) g -= kMasses ? push * weight_of[k] : push;
                values[k] = kSoftcap ? g * slope : g;
            }
            if (there) target.store(first / kThreads + i, values);
        }
    }

    template <int COUNT, class Target>
    __device__ __forceinline__ void write_zeros(int first, const Target& target) const {
        const Compute zeros[kElements] = {};
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (part.whole(word(first, i))) target.store(first / kThreads + i, zeros);
    }
};

// One element more.
__device__ __forceinline__ void add_edge(Compute x, Compute reference, const Compute* weight, RowSums<Compute>& sums) {
    const Compute d = x - reference;
    sums.s += ExpOf()(d);
    if constexpr (kSpread) {
        const Compute mass = kMasses ? *weight : Compute(1);
        sums.mass += mass;
        sums.gap -= mass != Compute(0) ? mass * d : Compute(0);
    }
}

// Whether the element at this position is in a word, or is an edge, of this thread.
__device__ __forceinline__ bool is_mine(const Part& part, int at) {
    if (!part.holds(at)) return false;
    const int word = at / kElements;
    return part.whole(word) ? word % kThreads == int(threadIdx.x) : edge_position<Input>(part, threadIdx.x) == at;
}

}  // namespace online_softmax
