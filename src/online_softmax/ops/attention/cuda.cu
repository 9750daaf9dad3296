// Merging partial results of attention, every partial result read once.
#include "merge.cuh"

using namespace online_softmax;

template <class Outs, class Lses>
__device__ __forceinline__ void merge_row(const Outs& outs, const Lses& lses, Element* out, Compute* lse, Index rows,
                                          int pieces) {
    const Index wanted = Index(blockIdx.x) * (THREADS / kLanes) + threadIdx.x / kLanes;
    const bool exists = wanted < rows;  // every lane of a warp takes part in its shuffles
    const Index row = exists ? wanted : rows - 1;
    const int lane = threadIdx.x % kLanes;
    int at = lane;
    int64 offset = (int64(row) * pieces + lane) * kWidth;
    Weights weights(lses, row, lane);
    Batch batch;
    const uint64 policy = policy_of_partials(outs, rows, pieces);
    batch.read(outs, 0, offset, at < pieces, policy);  // on its way while the weights are computed
    weights.merge();
    const State<Compute> whole = weights.whole;
    const Compute scale = whole.s == Compute(0) ? Compute(1) : reciprocal(whole.s);
    if (exists && lane == 0) lse[row] = whole.s == Compute(0) ? whole.m : whole.m + log(whole.s);
#pragma unroll 1
    for (int first = 0;;) {
        Compute sum[kWidth];
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[k] = 0;
        for_each_chunk(outs, [&](int chunk) {
            if (chunk > 0) batch.read(outs, chunk, offset, at < pieces, policy);
            const Compute weight = weights.of_chunk(chunk);
#pragma unroll
            for (int i = 0; i < kChunk; ++i) {
                if (kCount > 0 && chunk + i >= kCount) continue;
                const Compute w = __shfl_sync(0xffffffffu, weight, i, kLanes);
                batch.at[i].clear_if(w == Compute(0));  // it takes no part, even if its out holds NaN
                Compute values[kWidth];
                batch.at[i].unpack(values);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) sum[k] += w * values[k];
            }
        });
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[k] *= scale;
        if (exists && at < pieces) Piece::of(sum).store(out + offset);
        first += kLanes;
        if (kOnce || first >= pieces) break;
        at += kLanes, offset += kLanes * kWidth;
        batch.read(outs, 0, offset, at < pieces, policy);
    }
}

#if STACKED
extern "C" __global__ void __launch_bounds__(THREADS, kBlocks)
    merge_partials(Element* out, Compute* lse, int64 rows, int64 pieces, const Element* outs, int64 out_stride,
                   const Compute* lses, int64 lse_stride, int64 count) {
    merge_row(Stacked<const Element>{outs, out_stride, count}, Stacked<const Compute>{lses, lse_stride, count}, out, lse,
              Index(rows), int(pieces));
}
#else
extern "C" __global__ void __launch_bounds__(THREADS, kBlocks)
    merge_partials(Element* out, Compute* lse, int64 rows, int64 pieces, OUT_PARAMETERS, LSE_PARAMETERS) {
    merge_row(Listed<const Element>{{OUTS}}, Listed<const Compute>{{LSES}}, out, lse, Index(rows), int(pieces));
}
#endif
