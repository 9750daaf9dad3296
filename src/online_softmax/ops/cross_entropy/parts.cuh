// Rows whose classes lie in parts (see parts.py), a thread a row: what a row's label says, and the parts merged.
#pragma once
#include "../../_cuda/functions.cuh"

namespace online_softmax {

struct RowLabel {
    int64 value;
    bool kept, known;  // not ignored; one of the classes

    template <class Label>
    __device__ __forceinline__ RowLabel(const Label* labels, int64 row, int64 stride, int64 classes, int64 ignore_index)
        : value(int64(labels[row * stride])), kept(value != ignore_index),
          known(kept && value >= 0 && value < classes) {}
};

// The log-sum-exp of a part, or of the whole row, and what rounding took from it.
template <class A>
struct LogSumExp { A lse, low; };

// Of the `count` parts at(i).  The largest counts as 1 and what rounding took from it, so that log1p keeps sums that hardly
// exceed it.  A NaN among the parts stays.
template <class A, class At>
__device__ __forceinline__ LogSumExp<A> merge_parts(int64 count, const At& at) {
    A m = at(0).lse;
    int64 first = 0;
    for (int64 i = 1; i < count; ++i) {
        const A lse = at(i).lse;
        if (lse > m) first = i;
        m = maximum(m, lse);
    }
    if (!is_finite(m)) return {m, 0};
    A rest = expm1(at(first).low);
    for (int64 i = 0; i < count; ++i) {
        const LogSumExp<A> part = at(i);
        if (i == first || part.lse == -infinity<A>()) continue;
        const A size = exp(part.lse - m);
        rest += size + size * expm1(part.low);
    }
    const A log_s = log1p(rest), lse = m + log_s;
    return {lse, (m - lse) + log_s};
}

}  // namespace online_softmax
