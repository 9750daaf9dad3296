// log s of a row whose maximum holds nearly all of the sum: s = 1 + rest rounds the rest away, so the sum is taken again
// without one maximal element.
#pragma once
#include "../../_cuda/summary.cuh"
#include "../../_cuda/words.cuh"

namespace online_softmax {

struct SumWithoutMaxima {
    Compute m;  // of the row
    Compute rest = 0, maxima = 0;

    // What a word adds to `rest`; its maximal elements are counted.
    __device__ __forceinline__ Compute rest_of(const uint4& word) {
        Compute values[kElements], partial = 0;
        unpack_word<Input>(word, values);
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
            if (values[k] == m) maxima += 1;
            else partial += Exp()(values[k] - m);
        }
        return partial;
    }
    // Log s of the row, with this thread's element of the edges.
    template <class States>
    __device__ __forceinline__ Compute log_of_row(Compute edge, States& exchange) {
        if (edge == m) maxima += 1;
        else rest += Exp()(edge - m);
        rest = lane_sum<kLanes>(rest), maxima = lane_sum<kLanes>(maxima);
        if constexpr (!kWithinWarp) {
            const Compute record[2] = {rest, maxima};
            const Compute* records = exchange.swap(record);
            rest = maxima = 0;
            for_my_records<Compute, 2>(records, [&](const Compute* r) { rest += r[0], maxima += r[1]; });
            rest = lane_sum<32>(rest), maxima = lane_sum<32>(maxima);
        }
        return log1p((maxima - 1) + rest);
    }
};

}  // namespace online_softmax
