// The class weights of a thread's words, 16 bytes at a time.
#pragma once
#include "../../_cuda/rows.cuh"
#include "classes.cuh"

namespace online_softmax {

constexpr bool kMasses = kWeighted && kSpread;  // every class has a weight that counts

// Where the columns of words are not multiples of four, weights come from a copy that begins one, two or three classes
// later: `shift` elements on, twice or three times that (weigh_classes in totals.cu).
struct WordWeights {
    const Compute* from;  // of the part's first word

    __device__ __forceinline__ WordWeights(const Compute* weight, int64 shift, const Part& part) {
        const int later = part.column & 3;
        from = weight + part.column + (later ? later * (shift - 1) : 0);
    }

    // Those of a word that is not wholly the row's are not read, and count for nothing.
    __device__ __forceinline__ void load(Compute (&of)[kElements], int word, bool whole) const {
#pragma unroll
        for (int k = 0; k < kElements; k += 4) {
            float4 four = make_float4(0, 0, 0, 0);
            if (whole) four = *reinterpret_cast<const float4*>(from + word * kElements + k);
            of[k] = four.x, of[k + 1] = four.y, of[k + 2] = four.z, of[k + 3] = four.w;
        }
    }
};

// All class weights, from the sums of their eighths.
__device__ __forceinline__ float sum_of_eight(const float* numbers) {
    const float4 a = reinterpret_cast<const float4*>(numbers)[0], b = reinterpret_cast<const float4*>(numbers)[1];
    return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
}

}  // namespace online_softmax
