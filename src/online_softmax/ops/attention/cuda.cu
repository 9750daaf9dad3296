// Merging partial results of attention: one thread a pack of a row's elements, every partial result read once.
#include "merge.cuh"

using namespace online_softmax;

template <class Outs, class Lses>
__device__ __forceinline__ void merge_pack(const Outs& outs, const Lses& lses, Element* out, Compute* lse, int64 rows,
                                           int64 packs) {
    const Index at = Index(blockIdx.x) * Index(blockDim.x) + threadIdx.x;
    if (at >= Index(rows) * Index(packs)) return;
    const Index row = at / Index(packs), pack = at - row * Index(packs);
    const int64 offset = int64(at) * kWidth;
    const State<Compute> whole = whole_row(lses, row);
    Compute sum[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] = 0;
    for_each_chunk(outs, [&](int first) {
        Compute values[kChunk][kWidth], weights[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
            if (outs.holds(first + i)) load(outs[first + i] + offset, values[i]);
        }
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
            weights[i] = outs.holds(first + i) ? weight_of(lses[first + i][row], whole.m) : Compute(0);
        }
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
            // A weight of 0 takes no part, even if its out holds NaN; selected, so that no load waits for a branch.
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
                const Compute with = sum[k] + weights[i] * values[i][k];
                sum[k] = weights[i] == Compute(0) ? sum[k] : with;
            }
        }
    });
    const Compute scale = Compute(1) / (whole.s == Compute(0) ? Compute(1) : whole.s);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] *= scale;
    store(out + offset, sum);
    if (pack == 0) lse[row] = whole.s == Compute(0) ? whole.m : whole.m + log(whole.s);
}

#if PARTIALS > 0
extern "C" __global__ void __launch_bounds__(256) merge_partials(Element* out, Compute* lse, int64 rows, int64 packs,
                                                                 OUT_PARAMETERS, LSE_PARAMETERS) {
    merge_pack(Listed<const Element>{{OUTS}}, Listed<const Compute>{{LSES}}, out, lse, rows, packs);
}
#else
extern "C" __global__ void __launch_bounds__(256) merge_partials(Element* out, Compute* lse, int64 rows, int64 packs,
                                                                 const Element* outs, int64 out_stride,
                                                                 const Compute* lses, int64 lse_stride, int64 count) {
    merge_pack(Stacked<const Element>{outs, out_stride, count}, Stacked<const Compute>{lses, lse_stride, count}, out, lse,
               rows, packs);
}
#endif
