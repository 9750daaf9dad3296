// What the attention kernels are called with.  Arrays are contiguous and of the compute dtype unless said.
#pragma once

#include <cstdint>

#include "../../_cpu/types.h"

namespace online_softmax {

// One tile of scores between two matrix products: `rows` queries against `keys` keys.  Rows come in groups of `period`
// queries.  Causal: row r sees its first `first + r % period` keys only.
struct AttentionTile {
    bool in_double, causal;
    std::int64_t rows, keys, period, first;
    char* scores;  // (rows, keys); become the weights exp(score - m)
    int threads;

    std::int64_t visible(std::int64_t row) const {
        if (!causal) return keys;
        const std::int64_t seen = first + row % period;
        return seen < 0 ? 0 : seen < keys ? seen : keys;
    }
};

// The state so far, brought up to date: m and s (rows), v (rows, size).
struct AttentionState {
    char *m, *s, *v;
    std::int64_t size;
};

// The gradient of a tile: `grad_weights` (rows, keys) become the gradient of the scores; the others are one a row.
struct AttentionGradient {
    char* grad_weights;
    const char *lse, *lse_low, *delta;
};

// Partial results of the same rows: outs and grad_outs (rows, size) of `dtype`, one number a row in the others.
struct Partials {
    DType dtype;
    bool in_double;
    std::int64_t count, rows, size;
    const char* const* outs;
    const char* const* lses;
    int threads;
};

struct MergeGradient {
    const char *grad_out, *grad_lse, *out;  // grad_out and out of `dtype`; grad_lse may be null
    char* const* grad_outs;                 // any of these may be null
    char* const* grad_lses;
};

}  // namespace online_softmax
