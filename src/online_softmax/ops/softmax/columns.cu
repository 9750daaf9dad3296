// softmax, log_softmax, logsumexp and their gradients along an axis that is not the last, without transposing: x is seen
// as (outer, length, inner), neighbours along `inner` side by side.  A block takes COLUMNS of them; its threads split the
// axis between them, each keeping a state per column, and the states are merged in shared memory.
//   INPUT, OUTPUT, THREADS as elsewhere; COLUMNS a power of two up to 32; BACKWARD 0 or 1; OPERATION
#include "../../_cuda/summary.cuh"
#include "gradient.cuh"

using namespace online_softmax;

enum Operation { kSoftmax, kLogSoftmax, kLogSumExp };
constexpr Operation kOperation = Operation(OPERATION);
constexpr bool kForward = !BACKWARD;
constexpr int kColumns = COLUMNS;
constexpr int kShares = kThreads / kColumns;  // threads that share a column
constexpr int kInFlight = 8;                  // elements a thread asks for before it needs the first

// fn(values, index of the first, its neighbours kShares further on) for this thread's elements of a column, several
// loads ahead of their use; `missing` beyond the end.
template <class Fn>
__device__ __forceinline__ void walk(const Input* column, int64 stride, int64 length, Compute missing, Fn fn) {
    for (int64 n = threadIdx.x / kColumns; n < length; n += kInFlight * kShares) {
        Compute values[kInFlight];
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            const int64 at = n + i * kShares;
            values[i] = at < length ? Compute(widen(column[at * stride])) : missing;
        }
        fn(values, n);
    }
}

// A long sum in two levels, so that no fp32 sum has more than some hundred terms.
template <class T, class Combine>
struct Total {
    Combine combine;
    T zero, low, high;
    int terms = 0;
    __device__ __forceinline__ Total(T nothing, Combine fn) : combine(fn), zero(nothing), low(nothing), high(nothing) {}
    __device__ __forceinline__ void add(T one) {
        low = combine(low, one);
        if (++terms % 64 == 0) high = combine(high, low), low = zero;
    }
    __device__ __forceinline__ T operator()() const { return combine(high, low); }
};

// One value per thread, combined over the threads of each column; every thread gets its column's.
template <class T, class Combine>
__device__ __forceinline__ T over_column(T mine, Combine combine) {
    __shared__ T shared[kThreads];
    __syncthreads();  // some may still be reading what the last call left there
    shared[threadIdx.x] = mine;
    __syncthreads();
#pragma unroll
    for (int step = kThreads / 2; step >= kColumns; step /= 2) {
        if (int(threadIdx.x) < step) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + step]);
        __syncthreads();
    }
    return shared[threadIdx.x % kColumns];
}

struct Merge {
    __device__ __forceinline__ State<Compute> operator()(State<Compute> a, State<Compute> b) const { return merge(a, b, Exp()); }
};
struct Add {
    __device__ __forceinline__ Compute operator()(Compute a, Compute b) const { return a + b; }
};

// The column's state without its rounding of s = 1 + rest: log1p of what is left without one maximal element.
__device__ Compute precise_log_sum(const Input* column, int64 stride, int64 length, Compute m) {
    Total<Compute, Add> rest(0, Add());
    Compute maxima = 0;
    walk(column, stride, length, -infinity<Compute>(), [&](const Compute* values, int64) {
        Compute partial = 0;
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            if (values[i] == m) maxima += 1;
            else partial += Exp()(values[i] - m);
        }
        rest.add(partial);
    });
    const Compute others = over_column(rest(), Add());
    return log1p((over_column(maxima, Add()) - 1) + others);
}

extern "C" __global__ void __launch_bounds__(kThreads)
softmax_columns(const Input* x, int64 x_outer_stride, int64 x_axis_stride, const Input* grad, int64 grad_outer_stride,
                int64 grad_axis_stride, Output* y, int64 y_outer_stride, int64 y_axis_stride, int64 length,
                int64 inner) {
    const int64 blocks_inner = (inner + kColumns - 1) / kColumns;
    const int64 outer = blockIdx.x / blocks_inner;
    const int64 column = blockIdx.x % blocks_inner * kColumns + threadIdx.x % kColumns;
    const bool active = column < inner;
    if (!active) length = 0;  // goes on with nothing: the barriers need all threads
    const Input* const source = x + outer * x_outer_stride + column;
    const Input* const incoming = grad + outer * grad_outer_stride + column;
    Output* const target = y + outer * y_outer_stride + column;

    if constexpr (kForward) {
        Total<State<Compute>, Merge> states(empty_state<Compute>(), Merge());
        walk(source, x_axis_stride, length, -infinity<Compute>(), [&](Compute* values, int64) {
            const Compute m = maximum_of<kInFlight>(values);
            states.add(state_of(m, exponential_sum<false, kInFlight>(values, m, Exp())));
        });
        const State<Compute> state = over_column(states(), Merge());
        const bool undefined = state.m == infinity<Compute>();  // as in cuda.cu
        Compute log_s = log(state.s);
        if constexpr (sizeof(Input) > 2 && kOperation != kSoftmax) {
            // As in cuda.cu; for log_softmax sooner, because merging left more roundings in s.
            const bool shows = kOperation == kLogSoftmax ? state.s < Compute(2)
                                                         : state.s < Compute(1.125) && fabs(state.m) < Compute(0.125);
            const bool lost = active && shows;  // beyond the last column s is 0
            if (__syncthreads_or(lost)) {
                const Compute precise = precise_log_sum(source, x_axis_stride, length, state.m);
                if (lost) log_s = precise;
            }
        }
        if constexpr (kOperation == kLogSumExp) {
            if (active && threadIdx.x < kColumns) *target = Narrow<Output>::one(state.m + log_s);
        } else {
            const Compute reference = state.m == -infinity<Compute>() ? Compute(0) : state.m;
            const Compute scale = undefined ? not_a_number<Compute>() : reciprocal(state.s);
            if (undefined) log_s = not_a_number<Compute>();
            walk(source, x_axis_stride, length, Compute(0), [&](const Compute* values, int64 n) {
#pragma unroll
                for (int i = 0; i < kInFlight; ++i) {
                    const Compute result = kOperation == kSoftmax ? exponential<Exp>(values[i], reference) * scale
                                                                  : values[i] - state.m - log_s;
                    if (n + i * kShares < length) target[(n + i * kShares) * y_axis_stride] = Narrow<Output>::one(result);
                }
            });
        }
    } else {  // here x is the forward's result
        const auto gradient_at = [&](int64 n) {
            return n < length ? Compute(widen(incoming[n * grad_axis_stride])) : Compute(0);
        };
        Total<Compute, Add> total(0, Add());
        walk(source, x_axis_stride, length, Compute(0), [&](const Compute* values, int64 n) {
            Compute partial = 0;
#pragma unroll
            for (int i = 0; i < kInFlight; ++i) partial += summand(gradient_at(n + i * kShares), values[i]);
            total.add(partial);
        });
        const Compute sum = over_column(total(), Add());
        walk(source, x_axis_stride, length, Compute(0), [&](const Compute* values, int64 n) {
#pragma unroll
            for (int i = 0; i < kInFlight; ++i) {
                const Compute result = input_gradient(gradient_at(n + i * kShares), values[i], sum);
                if (n + i * kShares < length) target[(n + i * kShares) * y_axis_stride] = Narrow<Output>::one(result);
            }
        });
    }
}

// dx = grad exp(x - lse), as in logsumexp_backward.cu.
extern "C" __global__ void __launch_bounds__(kThreads)
logsumexp_backward_columns(const Compute* grad, const Input* x, int64 x_outer_stride, int64 x_axis_stride,
                           const Compute* lse, Output* dx, int64 dx_outer_stride, int64 dx_axis_stride, int64 length,
                           int64 inner) {
    const int64 blocks_inner = (inner + kColumns - 1) / kColumns;
    const int64 outer = blockIdx.x / blocks_inner;
    const int64 column = blockIdx.x % blocks_inner * kColumns + threadIdx.x % kColumns;
    const bool active = column < inner;
    if (!active) length = 0;
    const Input* const source = x + outer * x_outer_stride + column;
    Output* const target = dx + outer * dx_outer_stride + column;
    const Compute normaliser = active ? lse[outer * inner + column] : Compute(0);
    Compute gradient = active ? grad[outer * inner + column] : Compute(0);
    const bool infinite = normaliser == infinity<Compute>();
    if (__syncthreads_or(infinite)) {
        Compute count = 0;
        walk(source, x_axis_stride, length, Compute(0), [&](const Compute* values, int64) {
#pragma unroll
            for (int i = 0; i < kInFlight; ++i) count += values[i] == infinity<Compute>() ? Compute(1) : Compute(0);
        });
        count = over_column(count, Add());
        if (infinite) gradient /= count;
    }
    walk(source, x_axis_stride, length, Compute(0), [&](const Compute* values, int64 n) {
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            Compute result = gradient * Exp()(values[i] - normaliser);
            if (infinite) result = values[i] == normaliser ? gradient : Compute(0);
            if (normaliser == -infinity<Compute>()) result = 0;
            if (n + i * kShares < length) target[(n + i * kShares) * dx_axis_stride] = Narrow<Output>::one(result);
        }
    });
}
