// Lines that lie side by side (any axis but the last of a C-ordered array), worked on many at once: vectors run across
// the columns, so that nothing is transposed.  Short rows too, whose columns are then read number by number.  Each
// column is summed in the blocks, lanes and order of blocks.h, and combined by summary.h: it gives the bits that the
// same numbers give as a row, however many columns there are.
#pragma once

#include <cstdint>

#include "convert.h"
#include "pieces.h"
#include "rows.h"
#include "summary.h"
#include "types.h"

namespace online_softmax {
namespace {

template <class T>
constexpr int tile_width = 512 / sizeof(T);  // columns worked on at once

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
    // An operand seen across: the line is a row of it, and the columns are what a Reader or Writer walks.
    Operand across_columns(int operand) const {
        Operand o = lines.operand[operand];
        o.axis_stride = o.strides[lines.dimensions - 1];
        return o;
    }

    const Lines& lines;
    std::int64_t columns, across, count;
};

// The columns [first, first + width) of one operand.
template <class T>
class Tile {
public:
    Tile(const Tiles<T>& tiles, int operand, std::int64_t index)
        : width(tiles.width(index)),
          padded((width + vector_width - 1) / vector_width * vector_width),
          operand_(tiles.lines.operand[operand]),
          data_(tiles.lines.line(operand_, tiles.first_line(index))),
          stride_(operand_.strides[tiles.lines.dimensions - 1]),
          direct_(width == tile_width<T> && operand_.dtype == dtype_of<T> && stride_ == static_cast<std::int64_t>(sizeof(T))) {}

    ONLINE_SOFTMAX_INLINE void load_row(std::int64_t i, T* to) const {
        const char* from = data_ + i * operand_.axis_stride;
        if (direct_) {
            __builtin_memcpy(to, from, tile_width<T> * sizeof(T));
        } else {
            load(operand_.dtype, from, stride_, width, to);
        }
    }
    // Rows far apart are beyond the hardware's own prefetching.
    ONLINE_SOFTMAX_INLINE void prefetch_row(std::int64_t i) const {
        const char* from = data_ + i * operand_.axis_stride;
        for (int line = 0; line < 8; ++line) __builtin_prefetch(from + 64 * line);
    }
    void store_numbers(const T* from) const { store_row(0, from); }
    void store_row(std::int64_t i, const T* from) const {
        store(operand_.dtype, from, width, data_ + i * operand_.axis_stride, stride_);
    }
    void store_element(std::int64_t i, int c, T value) const {
        store(operand_.dtype, &value, 1, data_ + i * operand_.axis_stride + c * stride_, size_of(operand_.dtype));
    }
    const char* column(int c) const { return data_ + c * stride_; }
    const Operand& operand() const { return operand_; }

    const int width;
    const int padded;  // to whole vectors: the columns that are not there hold zeros

private:
    static constexpr int vector_width = 64 / sizeof(T);
    const Operand& operand_;
    char* data_;
    std::int64_t stride_;
    bool direct_;
};

template <class T, class Body>
void for_each_tile(const Tiles<T>& tiles, int threads, Body body) {
    for_each_line(tiles.count, tiles.lines.length, threads, body, tiles.lines.length * tile_width<T>);
}

constexpr std::int64_t rows_ahead = 16;

// One number a column.
template <class T>
struct alignas(64) Row {
    T at[tile_width<T>];
};

// sum_block of every column: add(i, row) puts what row i adds into `row`.
template <class T, class Add>
ONLINE_SOFTMAX_INLINE Row<T> sum_block_of_columns(std::int64_t count, int padded, Add add) {
    Row<T> lane[lanes] = {};
    for (std::int64_t i = 0; i < count; ++i) add(i, lane[i % lanes].at);
    for (int half = lanes / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; ++l) {
#pragma omp simd
            for (int c = 0; c < padded; ++c) lane[l].at[c] += lane[l + half].at[c];
        }
    }
    return lane[0];
}

template <class T>
struct Summaries {
    Summary<T> column[tile_width<T>];
};

template <class T>
Summaries<T> empty_summaries() {
    Summaries<T> all;
    for (auto& column : all.column) column = empty_summary<T>();
    return all;
}

template <class T>
Summaries<T> combine_columns(const Summaries<T>& a, const Summaries<T>& b) {
    Summaries<T> both;
    for (int c = 0; c < tile_width<T>; ++c) both.column[c] = combine(a.column[c], b.column[c]);
    return both;
}

// The summaries of rows [begin, end) of a tile while its blocks come in.
template <class T>
class RunningColumns {
public:
    RunningColumns(const Tile<T>& tile, std::int64_t begin, std::int64_t end, bool exact)
        : tile_(tile), end_(end), exact_(exact), block_(end - begin < block_length ? end - begin : block_length) {
        for (int c = 0; c < tile_width<T>; ++c) column_[c] = Running<T>(begin);
        for (std::int64_t i = 0; tile.width < tile.padded && i < end - begin && i < block_length; ++i) block_[i] = {};
    }

    // Reads rows [first, first + count) once, for maxima and sums against the columns' references; false when a column
    // needs another reference.
    bool add_at_once(std::int64_t first, std::int64_t count) {
        const int padded = tile_.padded;
        Row<T> reference{}, m, x{};
        for (int c = 0; c < tile_.width; ++c) {
            reference.at[c] = column_[c].reference();
            if (!is_finite(reference.at[c])) return false;
        }
        for (T& each : m.at) each = -infinity<T>;
        const Row<T> sum = sum_block_of_columns<T>(count, padded, [&](std::int64_t i, T* lane) {
            read_row(first + i, x.at);
#pragma omp simd
            for (int c = 0; c < padded; ++c) m.at[c] = larger(x.at[c], m.at[c]);
#pragma omp simd
            for (int c = 0; c < padded; ++c) {
                lane[c] = add_exponential(lane[c], x.at[c] - reference.at[c]);  // hot: maximum and sum of columns
            }
        });
        for (int c = 0; c < tile_.width; ++c) {
            if (!column_[c].within_reach(m.at[c])) return false;
        }
        for (int c = 0; c < tile_.width; ++c) column_[c].add(first, m.at[c], sum.at[c]);
        return true;
    }

    // The same in two sweeps, with the references that the maxima ask for.  The rows are copied and not read twice:
    // those that lie a power of two apart evict each other.
    void add(std::int64_t first, std::int64_t count) {
        const int padded = tile_.padded;
        Row<T> m, reference{};
        for (T& each : m.at) each = -infinity<T>;
        for (std::int64_t i = 0; i < count; ++i) {
            T* x = block_[i].at;
            read_row(first + i, x);
#pragma omp simd
            for (int c = 0; c < padded; ++c) m.at[c] = larger(x[c], m.at[c]);  // hot: maximum of columns
        }
        for (int c = 0; c < tile_.width; ++c) {
            column_[c].move_to(column_[c].reference_for(m.at[c]));
            reference.at[c] = column_[c].reference();
        }
        const Row<T> sum = exact_ ? exact_sum(count, reference) : quick_sum(count, reference);
        for (int c = 0; c < tile_.width; ++c) {
            const bool ordinary = is_finite(reference.at[c]);
            column_[c].add(first, m.at[c], ordinary ? sum.at[c] : sum_against_infinity(c, count));
        }
    }

    // A row of the block that add() took last, by its number there.
    const T* copied(std::int64_t i) const { return block_[i].at; }

    Summaries<T> summaries() const {
        Summaries<T> all = empty_summaries<T>();
        for (int c = 0; c < tile_.width; ++c) all.column[c] = column_[c].summary();
        return all;
    }

private:
    ONLINE_SOFTMAX_INLINE void read_row(std::int64_t i, T* to) const {
        if (i + rows_ahead < end_) tile_.prefetch_row(i + rows_ahead);
        tile_.load_row(i, to);
    }
    Row<T> quick_sum(std::int64_t count, const Row<T>& reference) {
        const int padded = tile_.padded;
        return sum_block_of_columns<T>(count, padded, [&](std::int64_t i, T* lane) {
            const T* x = block_[i].at;
#pragma omp simd
            for (int c = 0; c < padded; ++c) lane[c] = add_exponential(lane[c], x[c] - reference.at[c]);  // hot: sum of columns
        });
    }
    Row<T> exact_sum(std::int64_t count, const Row<T>& reference) {
        const int padded = tile_.padded;
        return sum_block_of_columns<T>(count, padded, [&](std::int64_t i, T* lane) {
            const T* x = block_[i].at;
#pragma omp simd
            for (int c = 0; c < padded; ++c) lane[c] += exponential(x[c] - reference.at[c]);  // hot: exact sum of columns
        });
    }
    double sum_against_infinity(int c, std::int64_t count) {
        alignas(64) T column[block_length];
        for (std::int64_t i = 0; i < count; ++i) column[i] = block_[i].at[c];
        return sum_of_exponentials(column, count, column_[c].reference());
    }

    const Tile<T>& tile_;
    std::int64_t end_;
    bool exact_;
    Scratch<Row<T>> block_;
    Running<T> column_[tile_width<T>];
};

// The summaries of rows [begin, end) of a tile, at most a piece.  `exact` adds up the very exponentials that softmax of
// a row of one block divides.
template <class T>
Summaries<T> summarise_columns(const Tile<T>& tile, std::int64_t begin, std::int64_t end, bool exact) {
    RunningColumns<T> piece(tile, begin, end, exact);
    for (std::int64_t first = begin; first < end; first += block_length) {
        const std::int64_t count = end - first < block_length ? end - first : block_length;
        if (!piece.add_at_once(first, count)) piece.add(first, count);
    }
    return piece.summaries();
}

template <class T>
Finished<T> finish_column(const Summary<T>& summary, const Tile<T>& tile, int column, std::int64_t length) {
    Reader<T> reader(tile.operand(), tile.column(column));
    return finish_row(summary, reader, length);
}

}  // namespace
}  // namespace online_softmax
