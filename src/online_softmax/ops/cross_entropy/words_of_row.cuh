// What is done with some of a thread's words, COUNT of them from word `first` on; a word that is not wholly the row's counts
// for nothing (words.cuh).
#pragma once
#include "../../_cuda/summary.cuh"
#include "../../_cuda/words.cuh"
#include "row_loss.cuh"
#include "weights.cuh"

namespace online_softmax {

constexpr int kHeld = HELD, kKept = kSlots - kHeld;  // slots in registers and in shared memory
constexpr int kChunkSlots = CHUNK, kChunks = kKept / kChunkSlots, kChunkWords = kChunkSlots * kThreads;  // of those kept
// Where there is a gradient, what class weights weigh is summed while that is written, so that they are read once.
constexpr bool kWeighedLate = kMasses && kGradient;
constexpr bool kSelect = kScaled || kSpread;  // what fills missing words would count for something
// fp32 words in registers make room for their exponentials.
constexpr bool kExponentials = kKept == 0 && sizeof(Input) == sizeof(Compute) && kGradient && !kMasses;
static_assert(kKept % kChunkSlots == 0 && kGroup == kThreads && !kWithinWarp && !kProbabilities && !kAux && !kSoftcap);

// w (x - m) of d = x - m.  No mass, no part: not even of -inf.
__device__ __forceinline__ Compute weighed(Compute weight, Compute d) {
    return weight != Compute(0) ? weight * d : Compute(0);
}

struct WordsOfRow {
    Compute scale;
    const WordWeights& weights;
    const Part& part;
    uint32 signs;  // bits that turn the order of logits into the order of x

    __device__ __forceinline__ Compute scaled(Compute logit) const { return kScaled ? product(logit, scale) : logit; }

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

    // The largest x.
    template <int COUNT>
    __device__ __forceinline__ Compute top_of(uint4 (&some)[COUNT]) const {
        if constexpr (!kScaled) return maximum_of_words<Input, COUNT, Compute>(some);
        uint4 turned[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            turned[i] = some[i];
            turned[i].x ^= signs, turned[i].y ^= signs, turned[i].z ^= signs, turned[i].w ^= signs;
        }
        return maximum_of_words<Input, COUNT, Compute>(turned) * fabsf(scale);
    }

    // Adds what the words sum to against `reference`.  They may be replaced by the exponentials.
    template <int COUNT>
    __device__ __forceinline__ void add(uint4 (&some)[COUNT], int first, Compute reference, RowSums<Compute>& sums) const {
        constexpr bool weigh = kMasses && !kWeighedLate;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const bool there = !kSelect || part.whole(word(first, i));
            Compute values[kElements], weight_of[kElements], s = 0, gap = 0, mass = kMasses ? 0 : kElements;
            unpack_word<Input>(some[i], values);
            if constexpr (weigh) weights.load(weight_of, word(first, i), there);
#pragma unroll
            for (int k = 0; k < kElements; ++k) {
                const Compute d = scaled(values[k]) - reference, y = ExpOf()(d);
                s += y;
                if constexpr (weigh) mass += weight_of[k], gap -= weighed(weight_of[k], d);
                else if constexpr (kSpread && !kMasses) gap -= d;
                if constexpr (kExponentials) values[k] = y;
            }
            sums.s += there ? s : Compute(0);
            if constexpr (kSpread && !kWeighedLate) sums.gap += there ? gap : Compute(0), sums.mass += there ? mass : Compute(0);
            const auto pack = Pack<Input, kElements>::of(values);
            if constexpr (kExponentials) some[i] = make_uint4(pack.at[0], pack.at[1], pack.at[2], pack.at[3]);
        }
    }

    // Merges a chunk's sums, against the chunk's own maximum.
    template <int COUNT>
    __device__ __forceinline__ void summarise(uint4 (&some)[COUNT], int first, RowSums<Compute>& sums) const {
        RowSums<Compute> chunk;
        const Compute top = top_of(some);
        if (any<COUNT>(first)) chunk.m = top;
        add(some, first, chunk.reference(), chunk);
        chunk.become_state();
        sums.absorb<ExpOf>(chunk.record().at);
    }

    // exp(x - reference) * factor - push * w.  What is weighed late is taken from `gap`.
    template <int COUNT, class Target>
    __device__ __forceinline__ void write(uint4 (&some)[COUNT], int first, Compute reference, Compute factor, Compute push,
                                          const Target& target, Compute& gap) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const bool there = part.whole(word(first, i));
            Compute values[kElements], weight_of[kElements], weighed_here = 0;
            unpack_word<Input>(some[i], values);
            if constexpr (kMasses) weights.load(weight_of, word(first, i), there);
#pragma unroll
            for (int k = 0; k < kElements; ++k) {
                const Compute d = scaled(values[k]) - reference;
                Compute g = (kExponentials ? values[k] : ExpOf()(d)) * factor;
                if constexpr (kMasses) weighed_here += weighed(weight_of[k], d);
                if constexpr (kSpread) g -= kMasses ? push * weight_of[k] : push;
                values[k] = g;
            }
            if (there) target.store(first / kThreads + i, values);
            if constexpr (kMasses) gap -= there ? weighed_here : Compute(0);
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
    if constexpr (kSpread && !kWeighedLate) {
        const Compute mass = kMasses ? *weight : Compute(1);
        sums.mass += mass, sums.gap -= weighed(mass, d);
    }
}

}  // namespace online_softmax
