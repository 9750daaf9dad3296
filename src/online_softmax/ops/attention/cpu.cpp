// The state update of attention between two matrix products, and its gradient: one sweep over a tile that lies in the
// second cache.
#include "cpu.h"

#include "../../_cpu/pieces.h"

namespace online_softmax {
namespace {

template <class T>
void update_row(const AttentionTile& tile, const AttentionState& state, std::int64_t row) {
    T* const x = reinterpret_cast<T*>(tile.scores) + row * tile.keys;
    T& m = reinterpret_cast<T*>(state.m)[row];
    T& s = reinterpret_cast<T*>(state.s)[row];
    const std::int64_t seen = tile.visible(row);
    const T top = larger(maximum(x, seen), m);
    T sum = T(0);
    for (std::int64_t i = 0; i < seen; i += block_length) {
        sum += exponentiate(x + i, seen - i < block_length ? seen - i : block_length, top, x + i);
    }
    for (std::int64_t i = seen; i < tile.keys; ++i) x[i] = T(0);
    const T factor = rescale_factor(m, top, Exp());
    s = s * factor + sum;
    m = top;
    if (factor == T(1)) return;
    T* const v = reinterpret_cast<T*>(state.v) + row * state.size;
    // A part that weighs exactly nothing takes no part, even if it holds NaN.
#pragma omp simd
    for (std::int64_t i = 0; i < state.size; ++i) v[i] = factor == T(0) ? T(0) : v[i] * factor;
}

template <class T>
void gradient_row(const AttentionTile& tile, const AttentionGradient& in, std::int64_t row) {
    T* const p = reinterpret_cast<T*>(tile.scores) + row * tile.keys;
    T* const d = reinterpret_cast<T*>(in.grad_weights) + row * tile.keys;
    const T lse = reinterpret_cast<const T*>(in.lse)[row], low = reinterpret_cast<const T*>(in.lse_low)[row];
    const T delta = reinterpret_cast<const T*>(in.delta)[row];
    // A query that saw nothing has no weights; one whose log-sum-exp is +inf has no gradient to give: NaN.
    const std::int64_t seen = lse == -infinity<T> ? 0 : tile.visible(row);
    const T steady = lse == infinity<T> ? lse - lse : lse;
#pragma omp simd
    for (std::int64_t i = 0; i < seen; ++i) {  // a masked score, -inf, weighs exactly 0
        p[i] = exponential_up_to_limit((p[i] - steady) - low);  // hot: attention weights
    }
#pragma omp simd
    for (std::int64_t i = 0; i < seen; ++i) {
        const T grad = p[i] * (d[i] - delta);  // hot: attention gradient
        d[i] = p[i] == T(0) ? T(0) : grad;
    }
    for (std::int64_t i = seen; i < tile.keys; ++i) p[i] = d[i] = T(0);
}

template <class Row>
void for_each_row(const AttentionTile& tile, Row row) {
    parallel(tile.rows, tile.keys, tile.threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) row(i);
    });
}

}  // namespace

namespace ONLINE_SOFTMAX_ISA {

void attention_update(const AttentionTile& tile, const AttentionState& state) {
    if (tile.in_double) return for_each_row(tile, [&](std::int64_t i) { update_row<double>(tile, state, i); });
    for_each_row(tile, [&](std::int64_t i) { update_row<float>(tile, state, i); });
}

void attention_gradient(const AttentionTile& tile, const AttentionGradient& in) {
    if (tile.in_double) return for_each_row(tile, [&](std::int64_t i) { gradient_row<double>(tile, in, i); });
    for_each_row(tile, [&](std::int64_t i) { gradient_row<float>(tile, in, i); });
}

}  // namespace ONLINE_SOFTMAX_ISA
}  // namespace online_softmax
