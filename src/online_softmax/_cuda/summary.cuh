// A thread's values become the state (m, s) of its warp, then of the row.
#pragma once
#include "../state/state.h"
#include "exchange.cuh"
#include "functions.cuh"

namespace online_softmax {

template <int COUNT, class A>
__device__ __forceinline__ A maximum_of(const A* values) {
    constexpr int chains = COUNT % 4 == 0 ? 4 : 2;  // that need not wait for each other
    A m[chains];
#pragma unroll
    for (int i = 0; i < chains; ++i) m[i] = values[i];
#pragma unroll
    for (int i = chains; i < COUNT; ++i) m[i % chains] = maximum(m[i % chains], values[i]);
    return chains == 4 ? maximum(maximum(m[0], m[1]), maximum(m[2], m[chains - 1])) : maximum(m[0], m[1]);
}

// The sum of exp(x - m) over a thread's values, which are replaced by those exponentials if KEEP.  The sum runs over
// small blocks: a long chain of fp32 additions would round too often.  `note` sees each exponential and its exponent.
template <bool KEEP, int COUNT, class A, class ExpFn, class Note>
__device__ __forceinline__ A exponential_sum(A* values, A m, ExpFn exp_of, Note note) {
    constexpr int block = COUNT % 8 == 0 ? 8 : COUNT % 4 == 0 ? 4 : 2;
    const A reference = m == -infinity<A>() ? A(0) : m;
    A sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i += block) {
        A partial = 0;
#pragma unroll
        for (int k = i; k < i + block; ++k) {
            const A d = values[k] - reference;
            const A y = exp_of(d);
            partial += y;
            note(y, d);
            if constexpr (KEEP) values[k] = y;
        }
        sum += partial;
    }
    return sum;
}

template <bool KEEP, int COUNT, class A, class ExpFn>
__device__ __forceinline__ A exponential_sum(A* values, A m, ExpFn exp_of) {
    return exponential_sum<KEEP, COUNT>(values, m, exp_of, [](A, A) {});
}

// The state of a warp, whose maximum may be infinite or NaN.  At +inf the sum came out NaN (inf - inf); it is the number
// of +inf elements by the law, and any positive number will do for what is made of it here.
template <class A>
__device__ __forceinline__ State<A> state_of(A m, A s) {
    if (is_nan(m)) return {-infinity<A>(), m};
    return {m, m == infinity<A>() ? A(1) : s};
}

// The state of all records (m, s, ...), the same bits in every lane of every warp.
template <class A, int RECORD, class ExpFn>
__device__ __forceinline__ State<A> merge_records(const A* records, ExpFn exp_of) {
    constexpr int at_once = kRecords > 256 ? 2 : kRecords;  // a lane's sixteen would all be in registers, beside the row
    A m = -infinity<A>(), s = 0;
    for_my_records<A, RECORD, at_once>(records, [&](const A* record) { m = maximum(m, record[0]); });
    m = lane_maximum<32>(m);
    for_my_records<A, RECORD, at_once>(records, [&](const A* record) { s += record[1] * rescale_factor(record[0], m, exp_of); });
    return {m, lane_sum<32>(s)};
}

}  // namespace online_softmax
