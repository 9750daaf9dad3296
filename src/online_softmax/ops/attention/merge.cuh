// What the merging kernels share.  ROW_LANES neighbouring threads take a row and share the work on its weights: each lane
// computes that of one partial result in CHUNK, and hands it on by a shuffle.  They are compiled for:
//   ELEMENT, COMPUTE  types of outs, and of lses and arithmetic
//   WIDTH      elements of a row that a thread moves at once: a piece
//   ROW_LANES  a power of two up to 32
//   ONCE       a row has at most ROW_LANES pieces
//   CHUNK      partial results that are read before the first is used, a power of two up to ROW_LANES
//   PARTIALS   so many partial results; 0: `count` of them, known at run time
//   STACKED    they lie evenly; else each has a pointer of its own
//   INDEX      uint32, or uint64 where there are 2^32 rows
//   THREADS    in a block
#pragma once
#include "../../_cuda/async.cuh"
#include "../../_cuda/functions.cuh"

namespace online_softmax {

using Element = ELEMENT;
using Compute = COMPUTE;
using Index = INDEX;

constexpr int kWidth = WIDTH, kLanes = ROW_LANES, kChunk = CHUNK, kCount = PARTIALS;
constexpr bool kOnce = ONCE;
constexpr int kBlocks = kCount > 8 && sizeof(Compute) == 4 ? 3 : 1;  // unrolled so far, loads take all registers else
constexpr int kChunks = kCount > 0 ? (kCount + kChunk - 1) / kChunk : 1;

// WIDTH neighbouring elements as they lie in memory.
template <class Element>
struct PieceOf {
    static constexpr int kBytes = kWidth * sizeof(Element);
    static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
    uint32 at[kWords];

    __device__ __forceinline__ void load(const Element* from, uint64 policy) {
        if constexpr (kBytes == 16) {
            const uint4 word = online_softmax::load(from, policy);
            at[0] = word.x, at[1] = word.y, at[2] = word.z, at[3] = word.w;
        } else if constexpr (kBytes == 8) {
            const uint2 word = *reinterpret_cast<const uint2*>(from);
            at[0] = word.x, at[1] = word.y;
        } else if constexpr (kBytes == 4) {
            at[0] = *reinterpret_cast<const uint32*>(from);
        } else {
            at[0] = *reinterpret_cast<const uint16*>(from);
        }
    }
    __device__ __forceinline__ void store(Element* to) const {
        if constexpr (kBytes == 16) {
            *reinterpret_cast<uint4*>(to) = make_uint4(at[0], at[1], at[2], at[3]);
        } else if constexpr (kBytes == 8) {
            *reinterpret_cast<uint2*>(to) = make_uint2(at[0], at[1]);
        } else if constexpr (kBytes == 4) {
            *reinterpret_cast<uint32*>(to) = at[0];
        } else {
            *reinterpret_cast<uint16*>(to) = uint16(at[0]);
        }
    }
    __device__ __forceinline__ void clear_if(bool so) {
#pragma unroll
        for (int k = 0; k < kWords; ++k) at[k] = so ? 0u : at[k];
    }
    __device__ __forceinline__ void unpack(Compute (&values)[kWidth]) const {
        if constexpr (sizeof(Element) == 2 && kWidth == 1) {
            values[0] = Compute(widen(Element{uint16(at[0])}));
        } else {
            Pack<Element, kWidth> pack;
#pragma unroll
            for (int k = 0; k < kWords; ++k) pack.at[k] = at[k];
            pack.unpack(values);
        }
    }
    __device__ __forceinline__ static PieceOf of(const Compute (&values)[kWidth]) {
        PieceOf piece;
        if constexpr (sizeof(Element) == 2 && kWidth == 1) {
            piece.at[0] = Narrow<Element>::one(values[0]).bits;
        } else {
            const auto pack = Pack<Element, kWidth>::of(values);
#pragma unroll
            for (int k = 0; k < kWords; ++k) piece.at[k] = pack.at[k];
        }
        return piece;
    }
};

using Piece = PieceOf<Element>;

// One array a partial result, `stride` bytes from one to the next; none where there is no first.
template <class T>
struct Stacked {
    T* first;
    int64 stride, number;
    __device__ __forceinline__ T* operator[](int i) const {
        return reinterpret_cast<T*>(reinterpret_cast<uint64>(first) + i * stride);
    }
    __device__ __forceinline__ T* pick(int chunk, int i) const { return first ? (*this)[chunk + i] : nullptr; }
    __device__ __forceinline__ bool absent(int) const { return !first; }
    __device__ __forceinline__ int count() const { return kCount > 0 ? kCount : int(number); }
};

template <class T>
struct Listed {
    T* at[kCount > 0 ? kCount : 1];
    __device__ __forceinline__ T* operator[](int i) const { return at[i]; }  // i is known once loops are unrolled
    // The i-th of a chunk, where i differs between lanes: no array is indexed at run time.
    __device__ __forceinline__ T* pick(int chunk, int i) const {
        T* found = at[chunk];
#pragma unroll
        for (int k = 1; k < kChunk; ++k)
            if (chunk + k < kCount) found = i == k ? at[chunk + k] : found;
        return found;
    }
    __device__ __forceinline__ bool absent(int i) const { return i < kCount && !at[i]; }
    __device__ __forceinline__ int count() const { return kCount; }
};

template <int LANES, class A>
__device__ __forceinline__ A lanes_larger(A x) {  // none of them is NaN
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        const A other = __shfl_xor_sync(0xffffffffu, x, step);
        x = other > x ? other : x;
    }
    return x;
}

// The weights of a row's partial results before they are divided by their sum, those of a chunk side by side: lane i has
// that of partial result i % CHUNK.
template <class Lses>
struct Weights {
    const Lses& lses;
    const Index row;
    const int mine;
    Compute held[kChunks];  // the lses, and then the weights, where their number is compiled in
    State<Compute> whole;
    Compute top;

    __device__ __forceinline__ Weights(const Lses& lses, Index row, int lane) : lses(lses), row(row), mine(lane % kChunk) {
        if constexpr (kCount > 0) {
#pragma unroll
            for (int c = 0; c < kChunks; ++c) held[c] = fetch(c * kChunk);
        }
    }
    __device__ __forceinline__ Compute fetch(int first) const {
        const bool there = (kCount > 0 && first + kChunk <= kCount) || first + mine < lses.count();
        return there ? lses.pick(first, mine)[row] : -infinity<Compute>();
    }
    // 0 where nothing was seen; at +inf the infinite ones share evenly.
    __device__ __forceinline__ Compute weight(Compute lse) const { return Exp()(lse == whole.m ? top : lse - whole.m); }

    // The state over all partial results, the same bits in every lane.  A NaN lives in s.
    __device__ __forceinline__ void merge() {
        whole = empty_state<Compute>();
        if constexpr (kCount > 0) {
#pragma unroll
            for (int c = 0; c < kChunks; ++c) whole.m = held[c] > whole.m ? held[c] : whole.m;
        } else {
            for (int c = 0; c < lses.count(); c += kChunk) {
                const Compute lse = fetch(c);
                whole.m = lse > whole.m ? lse : whole.m;
            }
        }
        whole.m = lanes_larger<kChunk>(whole.m);
        top = whole.m == -infinity<Compute>() ? whole.m : Compute(0);
        if constexpr (kCount > 0) {
#pragma unroll
            for (int c = 0; c < kChunks; ++c) whole.s += held[c] = weight(held[c]);
        } else {
            for (int c = 0; c < lses.count(); c += kChunk) whole.s += weight(fetch(c));
        }
        whole.s = lane_sum<kChunk>(whole.s);
    }
    __device__ __forceinline__ Compute of_chunk(int first) const {
        if constexpr (kCount > 0) return held[first / kChunk];
        return weight(fetch(first));
    }
};

// fn(first) for chunks of partial results.
template <class Partials, class Fn>
__device__ __forceinline__ void for_each_chunk(const Partials& partials, Fn fn) {
    if constexpr (kCount > 0) {
#pragma unroll
        for (int i = 0; i < kCount; i += kChunk) fn(i);
    } else {
#pragma unroll 1
        for (int i = 0; i < partials.count(); i += kChunk) fn(i);
    }
}

// Of partial results of so many rows and pieces.
template <class Outs>
__device__ __forceinline__ uint64 policy_of_partials(const Outs& outs, Index rows, int pieces) {
    return policy_of_reading(int64(rows) * pieces * kWidth * sizeof(Element) * outs.count());
}

// Pieces of a chunk's partial results, as they lie in memory.
struct Batch {
    Piece at[kChunk];
    template <class Outs>
    __device__ __forceinline__ void read(const Outs& outs, int chunk, int64 offset, bool here, uint64 policy) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
            if (kCount > 0 ? chunk + i >= kCount : chunk + i >= outs.count()) continue;
            if (here) at[i].load(outs[chunk + i] + offset, policy);
        }
    }
};

}  // namespace online_softmax
