// A tile of columns (columns.h) that are no longer than a block: read once, and kept for whatever follows their summaries.
#pragma once

#include <cstdint>

#include "columns.h"

namespace online_softmax {
namespace {

template <class T>
class OneBlockTile {
public:
    OneBlockTile(const Tile<T>& tile, std::int64_t length) : tile_(tile), length_(length), rows_(tile, 0, length, false) {
        rows_.add(0, length);
        summaries = rows_.summaries();
    }

    const T* row(std::int64_t i) const { return rows_.copied(i); }

    // Calls take(column, its state) for every column.
    template <class Take>
    ONLINE_SOFTMAX_INLINE void finish(Take take) const {
        bool any = false;
        for (int c = 0; c < tile_.width; ++c) any = any || summaries.column[c].dominated();
        const Row<T> rest = any ? rests() : Row<T>{};
        for (int c = 0; c < tile_.width; ++c) {
            const Summary<T>& column = summaries.column[c];
            take(c, column.finished(column.others + static_cast<double>(rest.at[c])));
        }
    }

    Summaries<T> summaries;

private:
    // The sums of exp(x - m) without each column's first maximal element.
    Row<T> rests() const {
        constexpr T far = sizeof(T) == 8 ? T(1e300) : T(1e30);  // whose exponential is 0
        const int padded = tile_.padded;
        Row<T> m{}, first, left;  // 1 at a column's first maximal element; 1 until it has come
        for (T& each : left.at) each = T(1);
        for (int c = 0; c < tile_.width; ++c) {
            if (!is_infinite(summaries.column[c].m)) m.at[c] = summaries.column[c].m;
        }
        return sum_block_of_columns<T>(length_, padded, [&](std::int64_t i, T* lane) {
            const T* x = row(i);
#pragma omp simd
            for (int c = 0; c < padded; ++c) first.at[c] = x[c] == m.at[c] ? T(1) : T(0);  // hot: maxima of columns
#pragma omp simd
            for (int c = 0; c < padded; ++c) {
                first.at[c] *= left.at[c];
                left.at[c] -= first.at[c];
            }
#pragma omp simd
            for (int c = 0; c < padded; ++c) {
                lane[c] = add_exponential(lane[c], (x[c] - m.at[c]) - first.at[c] * far);  // hot: rests of columns
            }
        });
    }

    const Tile<T>& tile_;
    std::int64_t length_;
    RunningColumns<T> rows_;
};

}  // namespace
}  // namespace online_softmax
