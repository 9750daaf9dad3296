// The gradients of softmax and log_softmax, element by element, around one sum over the row.
#pragma once
#include "../../_cuda/functions.cuh"
#include "../../_cuda/words.cuh"

namespace online_softmax {

enum Gradient { kOfSoftmax, kOfLogSoftmax };
constexpr Gradient kGradient = Gradient(OPERATION);
using ExpOfResult = Either<sizeof(Input) == 2 && sizeof(Output) == 2, FastExp, Exp>::type;

template <class A>
__device__ __forceinline__ A summand(A gradient, A y) {
    return kGradient == kOfSoftmax ? gradient * y : gradient;
}

__device__ __forceinline__ Compute sum_of_word(uint4 grad, uint4 y) {
    Compute results[kElements], gradients[kElements], partial = 0;
    unpack_word<Input>(y, results);
    unpack_word<Input>(grad, gradients);
#pragma unroll
    for (int k = 0; k < kElements; ++k) partial += summand(gradients[k], results[k]);
    return partial;
}

template <class A>
__device__ __forceinline__ A input_gradient(A gradient, A y, A sum) {
    return kGradient == kOfSoftmax ? y * (gradient - sum) : gradient - ExpOfResult()(y) * sum;
}

}  // namespace online_softmax
