// The gradients of merging, every partial result read once.
#include "merge.cuh"

using namespace online_softmax;

// Arrays that all rows have one of; grad_lse may be null.
struct Row {
    const Element *grad_out, *out;
    const Compute* grad_lse;
    Index rows;
    int pieces;
};

// The sums of values[i] over the lanes of a row, that of i in lane i, i + CHUNK, ...: half of the values goes to the
// other half of the lanes, and so on, so that a step costs half as many shuffles as the one before.
__device__ __forceinline__ Compute sums_side_by_side(Compute (&values)[kChunk], int lane) {
#pragma unroll
    for (int half = kChunk / 2; half > 0; half /= 2) {
        const bool upper = lane & half;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const Compute kept = upper ? values[i + half] : values[i], sent = upper ? values[i] : values[i + half];
            values[i] = kept + __shfl_xor_sync(0xffffffffu, sent, half);
        }
    }
    Compute sum = values[0];
#pragma unroll
    for (int step = kChunk; step < kLanes; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

template <class Outs, class Lses, class GradOuts, class GradLses>
__device__ __forceinline__ void merge_row_backward(const Row& in, const Outs& outs, const Lses& lses,
                                                   const GradOuts& grad_outs, const GradLses& grad_lses) {
    const Index wanted = Index(blockIdx.x) * (THREADS / kLanes) + threadIdx.x / kLanes;
    const bool exists = wanted < in.rows;  // every lane of a warp takes part in its shuffles
    const Index row = exists ? wanted : in.rows - 1;
    const int lane = threadIdx.x % kLanes;
    const int64 start = (int64(row) * in.pieces + lane) * kWidth;
    Weights weights(lses, row, lane);
    Piece grad_piece, out_piece;
    Batch batch;
    const uint64 policy = policy_of_partials(outs, in.rows, in.pieces);
    const auto read_common = [&](int64 offset, bool here) {
        if (here) grad_piece.load(in.grad_out + offset, policy), out_piece.load(in.out + offset, policy);
    };
    if (kOnce) read_common(start, lane < in.pieces), batch.read(outs, 0, start, lane < in.pieces, policy);
    const Compute along = in.grad_lse ? in.grad_lse[row] : Compute(0);
    weights.merge();
    const Compute scale = weights.whole.s == Compute(0) ? Compute(1) : reciprocal(weights.whole.s);
    for_each_chunk(outs, [&](int chunk) {
        const Compute weight = weights.of_chunk(chunk) * scale;
        Compute pulls[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) pulls[i] = 0;
        for (int first = 0; first < in.pieces; first += kLanes) {
            const bool here = first + lane < in.pieces;
            const int64 offset = start + first * kWidth;
            if (!kOnce) read_common(offset, here);
            if (!kOnce || chunk > 0) batch.read(outs, chunk, offset, here, policy);
#pragma unroll
            for (int i = 0; i < kChunk; ++i) {
                if (kCount > 0 ? chunk + i >= kCount : chunk + i >= outs.count()) continue;
                const Compute w = __shfl_sync(0xffffffffu, weight, i, kLanes);
                Compute grad[kWidth], average[kWidth], value[kWidth], pull = 0;
                grad_piece.unpack(grad), out_piece.unpack(average), batch.at[i].unpack(value);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) pull += grad[k] * (value[k] - average[k]), grad[k] *= w;
                pulls[i] += here ? pull : Compute(0);
                Piece result = Piece::of(grad);
                result.clear_if(w == Compute(0));
                if (exists && here && !grad_outs.absent(chunk + i)) result.store(grad_outs[chunk + i] + offset);
            }
            if (kOnce) break;
        }
        // A lane now has the sum that belongs to its own weight.
        const Compute pull = sums_side_by_side(pulls, lane) + along;
        const int mine = lane % kChunk;
        if (exists && lane < kChunk && chunk + mine < outs.count()) {
            Compute* const to = grad_lses.pick(chunk, mine);
            if (to) to[row] = weight == Compute(0) ? Compute(0) : weight * pull;
        }
    });
}

#if STACKED
extern "C" __global__ void __launch_bounds__(THREADS, sizeof(Compute) == 4 ? 4 : 1)
    merge_partials_backward(const Element* grad_out, const Compute* grad_lse, const Element* out, int64 rows, int64 pieces,
                            const Element* outs, int64 out_stride, const Compute* lses, int64 lse_stride,
                            Element* grad_outs, int64 grad_out_stride, Compute* grad_lses, int64 grad_lse_stride,
                            int64 count) {
    merge_row_backward(Row{grad_out, out, grad_lse, Index(rows), int(pieces)},
                       Stacked<const Element>{outs, out_stride, count}, Stacked<const Compute>{lses, lse_stride, count},
                       Stacked<Element>{grad_outs, grad_out_stride, count},
                       Stacked<Compute>{grad_lses, grad_lse_stride, count});
}
#else
extern "C" __global__ void __launch_bounds__(THREADS, sizeof(Compute) == 4 ? 4 : 1)
    merge_partials_backward(const Element* grad_out, const Compute* grad_lse, const Element* out, int64 rows, int64 pieces,
                            OUT_PARAMETERS, LSE_PARAMETERS, GRAD_OUT_PARAMETERS, GRAD_LSE_PARAMETERS) {
    merge_row_backward(Row{grad_out, out, grad_lse, Index(rows), int(pieces)}, Listed<const Element>{{OUTS}},
                       Listed<const Compute>{{LSES}}, Listed<Element>{{GRAD_OUTS}}, Listed<Compute>{{GRAD_LSES}});
}
#endif
