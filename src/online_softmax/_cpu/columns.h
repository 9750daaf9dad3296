// Lines that lie side by side (any axis but the last of a C-ordered array), worked on many at once: vectors run across
// the columns, so that nothing is transposed.  Each column is summed in the blocks, lanes and order of blocks.h, and
// combined by summary.h: it gives the bits that the same numbers give as a row, however many columns there are.
#pragma once

#include <cstdint>

#include "convert.h"
#include "summary.h"
#include "types.h"

namespace online_softmax {
namespace {

template <class T>
constexpr int tile_width = 128 / sizeof(T);  // columns worked on at once: two cache lines of each row of the array

// Where the columns [first, first + width) of one operand lie.
struct Tile {
    char* data;
    DType dtype;
    std::int64_t axis_stride, stride;

    template <class T>
    ONLINE_SOFTMAX_INLINE void load_row(std::int64_t i, int width, T* to) const {
        load(dtype, data + i * axis_stride, stride, width, to);
    }
    template <class T>
    ONLINE_SOFTMAX_INLINE void store_row(std::int64_t i, int width, const T* from) const {
        store(dtype, from, width, data + i * axis_stride, stride);
    }
    // Rows far apart are beyond the hardware's own prefetching.
    void prefetch_row(std::int64_t i) const {
        __builtin_prefetch(data + i * axis_stride);
        __builtin_prefetch(data + i * axis_stride + 64);
    }
};

constexpr std::int64_t rows_ahead = 16;

// All tiles of an operation, in the order of memory.
template <class T>
struct Tiles {
    explicit Tiles(const Lines& lines)
        : lines(lines),
          columns(lines.shape[lines.dimensions - 1]),
          across((columns + tile_width<T> - 1) / tile_width<T>),
          count(columns > 0 ? lines.count / columns * across : 0) {}

    std::int64_t first_line(std::int64_t tile) const { return tile / across * columns + tile % across * tile_width<T>; }
    int width(std::int64_t tile) const {
        const std::int64_t left = columns - tile % across * tile_width<T>;
        return left < tile_width<T> ? static_cast<int>(left) : tile_width<T>;
    }
    Tile of(int operand, std::int64_t tile) const {
        const Operand& o = lines.operand[operand];
        return {lines.line(o, first_line(tile)), o.dtype, o.axis_stride, o.strides[lines.dimensions - 1]};
    }

    const Lines& lines;
    std::int64_t columns, across, count;
};

// One number a column.
template <class T>
struct alignas(64) Row {
    T at[tile_width<T>];
};

// sum_block of every column: add(i, row) puts what row i adds into `row`.
template <class T, class Add>
ONLINE_SOFTMAX_INLINE Row<T> sum_block_of_columns(std::int64_t count, Add add) {
    Row<T> lane[lanes] = {};
    for (std::int64_t i = 0; i < count; ++i) add(i, lane[i % lanes].at);
    for (int half = lanes / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; ++l) {
#pragma omp simd
            for (int c = 0; c < tile_width<T>; ++c) lane[l].at[c] += lane[l + half].at[c];
        }
    }
    return lane[0];
}

template <class T>
struct Summaries {
    Summary<T> column[tile_width<T>];
};

template <class T>
Summaries<T> combine_columns(const Summaries<T>& a, const Summaries<T>& b) {
    Summaries<T> both;
    for (int c = 0; c < tile_width<T>; ++c) both.column[c] = combine(a.column[c], b.column[c]);
    return both;
}

// A block of a column, gathered: for the rare ones that are not summed with the others.
template <class T>
void gather(const Row<T>* block, std::int64_t count, int column, T* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = block[i].at[column];
}

// The summaries of rows [begin, end) of a tile, at most a piece.  `block` has room for a block of the tile: two sweeps
// over the array itself would find its rows evicted when they lie a power of two apart.
template <class T>
Summaries<T> summarise_columns(const Tile& tile, int width, std::int64_t begin, std::int64_t end, Row<T>* block) {
    Summaries<T> piece;
    for (auto& column : piece.column) column = empty_summary<T>();
    if (width < tile_width<T>) {
        for (std::int64_t i = 0; i < block_length; ++i) block[i] = {};  // columns that are not there
    }
    for (std::int64_t first = begin; first < end; first += block_length) {
        const std::int64_t count = end - first < block_length ? end - first : block_length;
        Row<T> m;
        for (int c = 0; c < tile_width<T>; ++c) m.at[c] = piece.column[c].m;
        for (std::int64_t i = 0; i < count; ++i) {
            if (first + i + rows_ahead < end) tile.prefetch_row(first + i + rows_ahead);
            T* x = block[i].at;
            tile.load_row(first + i, width, x);
#pragma omp simd
            for (int c = 0; c < tile_width<T>; ++c) m.at[c] = larger(x[c], m.at[c]);  // hot: maximum of columns
        }
        const Row<T> sum = sum_block_of_columns<T>(count, [&](std::int64_t i, T* lane) {
            const T* x = block[i].at;
#pragma omp simd
            for (int c = 0; c < tile_width<T>; ++c) lane[c] += exponential(x[c] - m.at[c]);  // hot: sum of columns
        });
        for (int c = 0; c < width; ++c) {
            double s = sum.at[c];
            if (is_infinite(m.at[c])) {
                alignas(64) T column[block_length];
                gather(block, count, c, column);
                s = sum_of_exponentials(column, count, m.at[c]);
            }
            const Summary<T> part{m.at[c], 0.0, s, first};
            piece.column[c] = first == begin ? part : combine(piece.column[c], part);
        }
    }
    return piece;
}

}  // namespace
}  // namespace online_softmax
