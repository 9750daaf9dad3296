// The gradients of merging: ROW_LANES neighbouring threads take a row, reading every partial result once and writing its
// gradient; the sum over a row that the gradient of its lse needs stays within a warp.
#include "merge.cuh"

using namespace online_softmax;

constexpr int kLanes = ROW_LANES;

// Arrays that all rows have one of; grad_lse may be null.
struct Row {
    const Element *grad_out, *out;
    const Compute* grad_lse;
    int64 rows, packs;
};

template <class Outs, class Lses, class GradOuts, class GradLses>
__device__ __forceinline__ void merge_row_backward(const Row& in, const Outs& outs, const Lses& lses,
                                                   const GradOuts& grad_outs, const GradLses& grad_lses) {
    const int64 wanted = (int64(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
    const bool exists = wanted < in.rows;  // every lane of a warp takes part in its sums
    const int64 row = exists ? wanted : in.rows - 1;
    const int lane = threadIdx.x % kLanes;
    const State<Compute> whole = whole_row(lses, row);
    const Compute scale = Compute(1) / (whole.s == Compute(0) ? Compute(1) : whole.s);
    const Compute along = in.grad_lse ? in.grad_lse[row] : Compute(0);
    for_each_chunk(outs, [&](int first) {
        Compute weights[kChunk], pulls[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
            weights[i] = outs.holds(first + i) ? weight_of(lses[first + i][row], whole.m) * scale : Compute(0);
            pulls[i] = 0;
        }
        for (int64 pack = lane; pack < in.packs; pack += kLanes) {
            const int64 offset = (row * in.packs + pack) * kWidth;
            Compute grad[kWidth], average[kWidth], values[kChunk][kWidth];
            load(in.grad_out + offset, grad);
            load(in.out + offset, average);
#pragma unroll
            for (int i = 0; i < kChunk; ++i) {
                if (outs.holds(first + i)) load(outs[first + i] + offset, values[i]);
            }
#pragma unroll
            for (int i = 0; i < kChunk; ++i) {
                if (!outs.holds(first + i)) continue;
                Compute result[kWidth];
                const bool nothing = weights[i] == Compute(0);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) {
                    result[k] = nothing ? Compute(0) : weights[i] * grad[k];
                    if (!nothing) pulls[i] += grad[k] * (values[i][k] - average[k]);
                }
                Element* const to = grad_outs[first + i];
                if (to && exists) store(to + offset, result);
            }
        }
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
            const Compute pull = lane_sum<kLanes>(pulls[i]) + along;
            if (!outs.holds(first + i)) continue;
            Compute* const to = grad_lses[first + i];
            if (to && exists && lane == 0) to[row] = weights[i] == Compute(0) ? Compute(0) : weights[i] * pull;
        }
    });
}

#if PARTIALS > 0
extern "C" __global__ void __launch_bounds__(256)
    merge_partials_backward(const Element* grad_out, const Compute* grad_lse, const Element* out, int64 rows, int64 packs,
                            OUT_PARAMETERS, LSE_PARAMETERS, GRAD_OUT_PARAMETERS, GRAD_LSE_PARAMETERS) {
    merge_row_backward(Row{grad_out, out, grad_lse, rows, packs}, Listed<const Element>{{OUTS}},
                       Listed<const Compute>{{LSES}}, Listed<Element>{{GRAD_OUTS}}, Listed<Compute>{{GRAD_LSES}});
}
#else
extern "C" __global__ void __launch_bounds__(256)
    merge_partials_backward(const Element* grad_out, const Compute* grad_lse, const Element* out, int64 rows, int64 packs,
                            const Element* outs, int64 out_stride, const Compute* lses, int64 lse_stride,
                            Element* grad_outs, int64 grad_out_stride, Compute* grad_lses, int64 grad_lse_stride,
                            int64 count) {
    merge_row_backward(Row{grad_out, out, grad_lse, rows, packs}, Stacked<const Element>{outs, out_stride, count},
                       Stacked<const Compute>{lses, lse_stride, count},
                       Stacked<Element>{grad_outs, grad_out_stride, count},
                       Stacked<Compute>{grad_lses, grad_lse_stride, count});
}
#endif
