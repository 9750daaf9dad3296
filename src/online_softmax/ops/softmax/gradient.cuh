// The gradients of softmax and log_softmax, element by element, around one sum over the row.
#pragma once
#include "../../_cuda/functions.cuh"
#include "../../_cuda/geometry.cuh"

namespace online_softmax {

enum Gradient { kOfSoftmax, kOfLogSoftmax };
constexpr Gradient kGradient = Gradient(OPERATION);
using ExpOfResult = Either<sizeof(Input) == 2 && sizeof(Output) == 2, FastExp, Exp>::type;

template <class A>
__device__ __forceinline__ A summand(A gradient, A y) {
    return kGradient == kOfSoftmax ? gradient * y : gradient;
}

template <class A>
__device__ __forceinline__ A input_gradient(A gradient, A y, A sum) {
    return kGradient == kOfSoftmax ? y * (gradient - sum) : gradient - ExpOfResult()(y) * sum;
}

}  // namespace online_softmax
