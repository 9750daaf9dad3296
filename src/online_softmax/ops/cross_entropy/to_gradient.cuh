// The gradient of a thread's words, from what their rooms hold.
#pragma once
#include "rooms.cuh"

namespace online_softmax {

constexpr int kChunk = CHUNK, kChunks = kSlots / kChunk;  // words that a warp takes by the same formula

// The thread's word of a slot.
__device__ __forceinline__ int word_at(int slot) { return slot * kThreads + int(threadIdx.x); }

// The weights of a chunk's words, asked for while the chunk before it is worked on.
struct NextWeights {
    Compute of[kChunk][kElements];
    __device__ __forceinline__ void load(const Compute* from, const Part& part) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) load_weights(of[i], from + i * kThreads * kElements, part.whole(word_at(i)));
    }
};

struct ToGradient {
    const Capped& logit;
    Compute reference, factor, unit;  // the gradient is (exp(x - reference) * factor - w) * (unit * slope)
    Input* to;                        // of the thread's first word, as all below, which move on from chunk to chunk
    const Compute* weights;
    int word, count;                  // it is wholly the row's if, unsigned, word < count
    bool aligned;                     // written 16 bytes at a time

    // Hidden, or they are worked out again for every word.
    __device__ __forceinline__ ToGradient(const Capped& of, Input* row, const Part& part, const Compute* weights_of_part)
        : logit(of),
          to(hidden(row + part.column + int(threadIdx.x) * kElements)),
          weights(weights_of_part + int(threadIdx.x) * kElements),
          word(int(threadIdx.x) - part.whole_from),
          count(part.whole_to - part.whole_from),
          aligned(aligned_with<Input, kElements>(row, part)) {}

    __device__ __forceinline__ bool whole(int later) const { return uint32(word + later * kThreads) < uint32(count); }
    __device__ __forceinline__ bool reaches() const { return word - int(threadIdx.x & 31) < count; }

    __device__ __forceinline__ void store(int later, const Compute (&g)[kElements]) const {
        Input* const at = to + later * kThreads * kElements;
        if (aligned) {
            store_if(at, Pack<Input, kElements>::of(g), whole(later));
        } else if (whole(later)) {
#pragma unroll
            for (int k = 0; k < kElements; ++k) at[k] = Narrow<Input>::one(g[k]);
        }
    }

    // Where rooms hold capped logits; returns the sum of w (x - reference).  A word's weights give way to those of the same
    // word of the next chunk.
    template <bool PUSHED>
    __device__ __forceinline__ Compute near_chunk(int first, NextWeights& next) const {
        Compute sum = 0;
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
            Compute mass[kElements], x[kElements], slope[kElements];
            if constexpr (kMasses && PUSHED) {
#pragma unroll
                for (int k = 0; k < kElements; ++k) mass[k] = next.of[i][k];
                load_weights(next.of[i], weights + (kChunk + i) * kThreads * kElements, whole(kChunk + i));
            }
            Rooms::get(first + i, logit, x);
#pragma unroll
            for (int k = 0; k < kElements; ++k) slope[k] = __fmaf_rn(-(x[k] * (logit.inverses.y * unit)), x[k], unit);
            sum += make<PUSHED>(i, x, slope, mass);
        }
        return sum;
    }

    // Where they hold words as they came.
    template <bool PUSHED>
    __device__ __forceinline__ Compute far_chunk(int first, NextWeights& next) const {
        Compute sum = 0;
#pragma unroll 1
        for (int i = 0; i < kChunk; ++i) {
            Compute mass[kElements], x[kElements], slope[kElements];
            if constexpr (kMasses && PUSHED) load_weights(mass, weights + i * kThreads * kElements, whole(i));
            unpack_word<Input>(Rooms::raw(first + i), x);
#pragma unroll
            for (int k = 0; k < kElements; ++k) {
                const CappedLogit far = logit.template of<false>(x[k]);
                x[k] = far.value, slope[k] = far.slope * unit;
            }
            sum += make<PUSHED>(i, x, slope, mass);
        }
        if constexpr (kMasses && PUSHED) {
#pragma unroll
            for (int i = 0; i < kChunk; ++i)
                load_weights(next.of[i], weights + (kChunk + i) * kThreads * kElements, whole(kChunk + i));
        }
        return sum;
    }

    // The gradient of one word takes the place of x and is written.
    template <bool PUSHED>
    __device__ __forceinline__ Compute make(int later, Compute (&x)[kElements], const Compute (&slope)[kElements],
                                            const Compute (&mass)[kElements]) const {
        Compute gaps[2] = {0, 0};
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
            const Compute d = x[k] - reference;
            if constexpr (PUSHED) gaps[k % 2] = kMasses ? __fmaf_rn(mass[k], d, gaps[k % 2]) : gaps[k % 2] + d;
            const Compute g = exponential_of_units(d) * factor - (!PUSHED ? Compute(0) : kMasses ? mass[k] : Compute(1));
            x[k] = g * slope[k];
        }
        if constexpr (kGradient) store(later, x);
        return PUSHED && whole(later) ? gaps[0] + gaps[1] : Compute(0);
    }

    template <bool PUSHED>
    __device__ __forceinline__ Compute write(uint32 near, NextWeights& next) {
        Compute sum = 0;
#pragma unroll 1
        for (int first = 0; first < kSlots && reaches(); first += kChunk) {
            if (near & 1) sum += near_chunk<PUSHED>(first, next);
            else sum += far_chunk<PUSHED>(first, next);
            near >>= 1;
            to += kChunk * kThreads * kElements, weights += kChunk * kThreads * kElements, word += kChunk * kThreads;
        }
        return -sum;
    }

    __device__ __forceinline__ void write_zeros() {
        const Compute zeros[kElements] = {};
#pragma unroll 1
        for (int slot = 0; slot < kSlots; ++slot) {
            if constexpr (kGradient) store(0, zeros);
            to += kThreads * kElements, word += kThreads;
        }
    }
};

}  // namespace online_softmax
