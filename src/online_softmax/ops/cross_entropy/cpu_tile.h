// Rows of cross-entropy that lie side by side, or are short: a tile of them at once, as in columns.h.  The numbers of each
// row, and so the bits of its loss and gradient, are those of cpu_row.h.
#pragma once

#include <cstdint>

#include "../../_cpu/one_block_tile.h"
#include "cpu_gradient.h"

namespace online_softmax {
namespace {

// Whether a tile of one block can be read as it lies, and written with no more than its rows' numbers.
inline bool taken_in_tiles(const CrossEntropyCall& call) {
    const std::int64_t length = call.lines.length;
    const bool plain = !spread_out(call) && call.options.scale == 1.0 && call.options.softcap == 0.0;
    return plain && call.lines.columns && length > 0 && length <= block_length;
}

// The gradient, which may take the memory of the logits; row(i) gives a row of these.
template <class T, class RowOf>
ONLINE_SOFTMAX_INLINE void write_gradients(const Tile<T>& gradient, std::int64_t length, const RowGradient<T>* numbers,
                                           RowOf row) {
    Row<T> lse{}, factor{}, kept{}, g{};
    for (int c = 0; c < gradient.width; ++c) {
        lse.at[c] = numbers[c].lse, factor.at[c] = numbers[c].factor, kept.at[c] = T(!numbers[c].zeros);
    }
    const int padded = gradient.padded;
    for (std::int64_t i = 0; i < length; ++i) {
        const T* x = row(i);
#pragma omp simd
        for (int c = 0; c < padded; ++c) {
            const T value = exponential(x[c] - lse.at[c]) * factor.at[c];  // hot: gradients of a tile
            g.at[c] = kept.at[c] != T(0) ? value : T(0);
        }
        gradient.store_row(i, g.at);
    }
    for (int c = 0; c < gradient.width; ++c) {
        if (numbers[c].own_class >= 0) gradient.store_element(numbers[c].own_class, c, numbers[c].own);
    }
}

}  // namespace
}  // namespace online_softmax
