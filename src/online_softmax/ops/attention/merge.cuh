// What the merging kernels share.  They are compiled for:
//   ELEMENT, COMPUTE  types of outs, and of lses and arithmetic
//   WIDTH    elements of a row that a thread moves at once
//   CHUNK    partial results that are read before the first is used
//   INDEX    uint32, or uint64 where there are more than 2^32 packs
//   PARTIALS    0: partial results are stacked, `count` of them; else a list of so many, each with pointers of its own
#pragma once
#include "../../_cuda/functions.cuh"

namespace online_softmax {

using Element = ELEMENT;
using Compute = COMPUTE;
using Index = INDEX;

constexpr int kWidth = WIDTH, kChunk = CHUNK, kCount = PARTIALS;

// Neighbouring elements of a row, moved in one piece.
struct alignas(kWidth * sizeof(Element)) Words {
    Element at[kWidth];
};
constexpr bool kWhole = sizeof(Words) == 16;

template <class T>
__device__ __forceinline__ void load(const T* from, Compute (&values)[kWidth]) {
    if constexpr (kWhole) {
        Pack<T, kWidth>::load(from).unpack(values);
    } else {
        const Words words = *reinterpret_cast<const Words*>(from);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] = Compute(widen(words.at[k]));
    }
}

template <class T>
__device__ __forceinline__ void store(T* to, const Compute (&values)[kWidth]) {
    if constexpr (kWhole) {
        Pack<T, kWidth>::of(values).store(to);
    } else {
        Words words;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) words.at[k] = Narrow<Element>::one(values[k]);
        *reinterpret_cast<Words*>(to) = words;
    }
}

// One array a partial result.
template <class T>
struct Stacked {
    T* first;
    int64 stride, count;
    __device__ __forceinline__ T* operator[](int i) const { return first ? first + i * stride : nullptr; }
    __device__ __forceinline__ bool holds(int i) const { return i < count; }
};

template <class T>
struct Listed {
    T* at[kCount > 0 ? kCount : 1];
    static constexpr int count = kCount;
    __device__ __forceinline__ T* operator[](int i) const { return at[i]; }  // i is known once loops are unrolled
    __device__ __forceinline__ bool holds(int i) const { return i < kCount; }
};

// fn(index of the first) for chunks of partial results.
template <class Partials, class Fn>
__device__ __forceinline__ void for_each_chunk(const Partials& partials, Fn fn) {
    if constexpr (kCount > 0) {
#pragma unroll
        for (int i = 0; i < kCount; i += kChunk) fn(i);
    } else {
#pragma unroll 1
        for (int i = 0; i < partials.count; i += kChunk) fn(i);
    }
}

// The weight of a partial result before it is divided by the sum of all: 0 where it saw nothing.
__device__ __forceinline__ Compute weight_of(Compute lse, Compute m) {
    return lse == -infinity<Compute>() ? Compute(0) : rescale_factor(lse, m, Exp());
}

// The state of a row over all its partial results.  A NaN lives in s.
template <class Lses>
__device__ __forceinline__ State<Compute> whole_row(const Lses& lses, int64 row) {
    State<Compute> whole = empty_state<Compute>();
    for_each_chunk(lses, [&](int first) {
#pragma unroll
        for (int i = first; i < first + kChunk; ++i) {
            if (!lses.holds(i)) break;
            const Compute lse = lses[i][row];
            whole.m = lse > whole.m ? lse : whole.m;
        }
    });
    for_each_chunk(lses, [&](int first) {
#pragma unroll
        for (int i = first; i < first + kChunk; ++i) {
            if (lses.holds(i)) whole.s += weight_of(lses[i][row], whole.m);
        }
    });
    return whole;
}

}  // namespace online_softmax
