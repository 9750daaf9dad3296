// What a class contributes: its logit after scale and softcap, its weight, and the target's mass on it.
#pragma once
#include "../../_cuda/functions.cuh"
#include "../../_cuda/geometry.cuh"

namespace online_softmax {

// Options, compiled in so that one that is off costs nothing.
constexpr bool kProbabilities = PROBABILITIES;  // targets are (rows, classes) probabilities, not class indices
constexpr bool kWeighted = WEIGHTED, kSmoothing = SMOOTHING, kScaled = SCALED, kSoftcap = SOFTCAP;
constexpr bool kSpread = kSmoothing || kProbabilities;  // target mass on every class, not on one
constexpr bool kZLoss = ZLOSS, kAux = AUX, kGradient = GRADIENT;

using ExpOf = Either<sizeof(Input) == 2, FastExp, Exp>::type;

// A class index.  Probabilities are none, but the code that would take them for one is compiled all the same.
template <class T>
__device__ __forceinline__ int64 label_of(T) { return -1; }
__device__ __forceinline__ int64 label_of(int index) { return index; }
__device__ __forceinline__ int64 label_of(int64 index) { return index; }

// Of what "mean" divides by, which is never 0 (totals.cu).
template <class A>
__device__ __forceinline__ A over(A divisor) { return 1 / divisor; }

// tanh to two units in the last place of its largest value, and 1 - tanh^2 to a few of its own: taken from 1 - t * t it
// would have no digits left where tanh is nearly 1.  Two special-function instructions and no branch.
template <class A>
struct Tangent { A value, slope; };

__device__ __forceinline__ Tangent<float> hyperbolic_tangent(float x) {
    const float power = exp2_fast(fabsf(x) * (-2 * kLog2E));
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(__fmaf_rn(0.5f, power, 0.5f)));
    const float missing = power * reciprocal;  // 1 - |tanh x|
    const float far = copysignf(1 - missing, x);
    // Near zero the difference cancels: x - x^3/3 + 2x^5/15 - 17x^7/315.
    const float square = x * x;
    const float series = __fmaf_rn(square, __fmaf_rn(square, -0.05396825f, 0.13333333f), -0.33333333f);
    return {fabsf(x) < 0.1f ? __fmaf_rn(x * square, series, x) : far, missing * (2 - missing)};
}
__device__ __forceinline__ Tangent<double> hyperbolic_tangent(double x) {
    const double power = exp(-2 * fabs(x)), missing = 2 * power / (1 + power);
    return {tanh(x), missing * (2 - missing)};
}

// Rounded by itself: fused into what follows, x - m would not be 0 where x is m.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

template <class A>
struct Logit {
    A scale, softcap, per_softcap;
    // x = softcap * tanh(scale * logit / softcap); the tangent's slope goes to `slope`.
    __device__ __forceinline__ A operator()(A logit, A& slope) const {
        const A scaled = kScaled ? product(logit, scale) : logit;
        if constexpr (!kSoftcap) return scaled;
        const Tangent<A> tangent = hyperbolic_tangent(scaled * per_softcap);
        slope = tangent.slope;
        return product(softcap, tangent.value);
    }
};

// The mass w_c q'_c on a column, except for the smoothing's constant factor eps / C of index targets.
template <class A, class WeightOf, class Target>
struct ClassMass {
    const WeightOf& weight_of;
    const Target* target;  // of this row
    A kept_mass, spread;   // 1 - eps, eps / C

    __device__ __forceinline__ A operator()(int column) const {
        if constexpr (kProbabilities) return weight_of(column) * (kept_mass * A(widen(target[column])) + spread);
        else return weight_of(column);
    }
};

template <class A>
struct WeightInMemory {
    const A* weight;
    __device__ __forceinline__ A operator()(int column) const { return kWeighted ? weight[column] : A(1); }
};

}  // namespace online_softmax
