// What every rung on the GPU includes: nothing from a toolkit, so that NVRTC alone compiles it.
// ELEMENT, the dtype of the arrays, is given on the compiler's command line: float, double, float16 or bfloat16.
#pragma once

#include "../../_cuda/functions.cuh"  // widen, Narrow: between ELEMENT and the number computed with; Exp: exp(x), x <= 0
#include "../../state/state.h"        // State, empty_state, merge

namespace online_softmax::ladder {

using Index = long long;
using Element = ELEMENT;
using Number = decltype(widen(Element{}));  // float for 16-bit elements

__device__ __forceinline__ Element narrow(Number value) { return Narrow<Element>::one(value); }

constexpr int kWarp = 32;            // threads that can exchange registers by a shuffle
constexpr int kMostWarps = 1024 / kWarp;
constexpr unsigned kAllLanes = 0xffffffffu;

}  // namespace online_softmax::ladder

// Every rung has the same arguments.  A softmax writes `result`; a loss reads `target`, and writes `loss` and, as its
// gradient, `result`.
#define RUNG extern "C" __global__ void rung(const online_softmax::ladder::Element* logits,       \
                                             const online_softmax::ladder::Index* target,         \
                                             online_softmax::ladder::Element* result,             \
                                             online_softmax::ladder::Number* loss,                \
                                             online_softmax::ladder::Index rows,                  \
                                             online_softmax::ladder::Index columns)
