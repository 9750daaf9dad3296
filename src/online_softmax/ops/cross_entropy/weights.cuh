// The class weights of a thread's words, 16 bytes at a time where the columns allow it.
#pragma once
#include "../../_cuda/rows.cuh"
#include "classes.cuh"

namespace online_softmax {

struct WordWeights {
    const Compute* of_row;
    const Compute* from;  // of the part's first word
    bool aligned;

    __device__ __forceinline__ WordWeights(const Compute* weight, const Part& part)
        : of_row(weight), from(weight + part.column), aligned(uint64(from) % 16 == 0) {}

    // Those of a word that is not wholly the row's are not read, and count for nothing.
    __device__ __forceinline__ void load(Compute (&of)[kElements], int word, bool whole) const {
        if (aligned) {
#pragma unroll
            for (int k = 0; k < kElements; k += 4) {
                float4 four = make_float4(0, 0, 0, 0);
                if (whole) four = *reinterpret_cast<const float4*>(from + word * kElements + k);
                of[k] = four.x, of[k + 1] = four.y, of[k + 2] = four.z, of[k + 3] = four.w;
            }
        } else {
#pragma unroll
            for (int k = 0; k < kElements; ++k) of[k] = whole ? from[word * kElements + k] : Compute(0);
        }
    }
};

}  // namespace online_softmax
