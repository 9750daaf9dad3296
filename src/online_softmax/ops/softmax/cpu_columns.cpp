// softmax, log_softmax and logsumexp, and their gradients, along any axis but the last: many columns at once.
#include "../../_cpu/columns.h"
#include "../../_cpu/pieces.h"
#include "cpu.h"

namespace online_softmax {
namespace {

template <class T>
Finished<T> finish_column(const Summary<T>& summary, const Tile& tile, int column, std::int64_t length) {
    alignas(64) T block[block_length];
    return finish(summary, length, [&] {
        const std::int64_t left = length - summary.where;
        const std::int64_t count = left < block_length ? left : block_length;
        const char* from = tile.data + column * tile.stride + summary.where * tile.axis_stride;
        load(tile.dtype, from, tile.axis_stride, count, block);
        return block;
    });
}

// Calls body(tile, threads) for every tile.
template <class T, class Body>
void for_each_tile(const Tiles<T>& tiles, int threads, Body body) {
    for_each_line(tiles.count, tiles.lines.length, threads, body, tiles.lines.length * tile_width<T>);
}

template <class T>
void forward_tile(const Tiles<T>& tiles, Softmax operation, std::int64_t index, int threads) {
    const std::int64_t length = tiles.lines.length;
    const int width = tiles.width(index);
    const Tile in = tiles.of(0, index), out = tiles.of(1, index);
    Summaries<T> nothing;
    for (auto& column : nothing.column) column = empty_summary<T>();
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
        Scratch<Row<T>> block(block_length);
        return summarise_columns<T>(in, width, begin, end, &block[0]);
    };
    const Summaries<T> summaries = fold_pieces(length, threads, nothing, piece, combine_columns<T>);

    Row<T> m{}, factor{};
    for (int c = 0; c < width; ++c) {
        const Finished<T> state = finish_column(summaries.column[c], in, c, length);
        m.at[c] = operation == Softmax::logsumexp ? state.logsumexp() : state.m;
        factor.at[c] = operation == Softmax::softmax ? state.inverse() : static_cast<T>(state.log);
    }
    if (operation == Softmax::logsumexp) return out.store_row(0, width, m.at);
    for_each_piece(length, threads, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        Row<T> x{}, y;
        for (std::int64_t i = begin; i < end; ++i) {
            if (i + rows_ahead < end) in.prefetch_row(i + rows_ahead);
            in.load_row(i, width, x.at);
            if (operation == Softmax::softmax) {
#pragma omp simd
                for (int c = 0; c < tile_width<T>; ++c) {  // hot: softmax of columns
                    y.at[c] = exponential(x.at[c] - m.at[c]) * factor.at[c];
                }
            } else {
#pragma omp simd
                for (int c = 0; c < tile_width<T>; ++c) y.at[c] = (x.at[c] - m.at[c]) - factor.at[c];
            }
            out.store_row(i, width, y.at);
        }
    });
}

template <class T>
struct Sums {
    double column[tile_width<T>] = {};
};

template <class T>
Sums<T> add(const Sums<T>& a, const Sums<T>& b) {
    Sums<T> both;
    for (int c = 0; c < tile_width<T>; ++c) both.column[c] = a.column[c] + b.column[c];
    return both;
}

template <class T>
void backward_tile(const Tiles<T>& tiles, Softmax operation, std::int64_t index, int threads) {
    const std::int64_t length = tiles.lines.length;
    const int width = tiles.width(index);
    const Tile grad = tiles.of(0, index), in = tiles.of(1, index), out = tiles.of(2, index);
    const bool logarithmic = operation == Softmax::log_softmax;
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
        Row<T> g{}, y{};
        Sums<T> sums;
        for (std::int64_t first = begin; first < end; first += block_length) {
            const std::int64_t count = end - first < block_length ? end - first : block_length;
            const Row<T> block = sum_block_of_columns<T>(count, [&](std::int64_t i, T* lane) {
                grad.load_row(first + i, width, g.at);
                if (logarithmic) {
#pragma omp simd
                    for (int c = 0; c < tile_width<T>; ++c) lane[c] += g.at[c];
                } else {
                    in.load_row(first + i, width, y.at);
#pragma omp simd
                    for (int c = 0; c < tile_width<T>; ++c) lane[c] += g.at[c] * y.at[c];
                }
            });
            for (int c = 0; c < tile_width<T>; ++c) sums.column[c] += block.at[c];
        }
        return sums;
    };
    const Sums<T> sums = fold_pieces(length, threads, Sums<T>(), piece, add<T>);
    Row<T> sum;
    for (int c = 0; c < tile_width<T>; ++c) sum.at[c] = static_cast<T>(sums.column[c]);
    for_each_piece(length, threads, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        Row<T> g{}, y{}, dx;
        for (std::int64_t i = begin; i < end; ++i) {
            grad.load_row(i, width, g.at);
            in.load_row(i, width, y.at);
            if (logarithmic) {
#pragma omp simd
                for (int c = 0; c < tile_width<T>; ++c) {
                    dx.at[c] = multiply_add(-sum.at[c], exponential_up_to_limit(y.at[c]), g.at[c]);
                }
            } else {
#pragma omp simd
                for (int c = 0; c < tile_width<T>; ++c) dx.at[c] = y.at[c] * (g.at[c] - sum.at[c]);
            }
            out.store_row(i, width, dx.at);
        }
    });
}

template <class T>
void forward_columns(const Lines& lines, Softmax operation, int threads) {
    const Tiles<T> tiles(lines);
    for_each_tile(tiles, threads, [&](std::int64_t i, int share) { forward_tile(tiles, operation, i, share); });
}

template <class T>
void backward_columns(const Lines& lines, Softmax operation, int threads) {
    const Tiles<T> tiles(lines);
    for_each_tile(tiles, threads, [&](std::int64_t i, int share) { backward_tile(tiles, operation, i, share); });
}

}  // namespace

void ONLINE_SOFTMAX_ISA::softmax_forward_columns(const Lines& lines, Softmax operation, int threads) {
    (in_double(lines) ? forward_columns<double> : forward_columns<float>)(lines, operation, threads);
}

void ONLINE_SOFTMAX_ISA::softmax_backward_columns(const Lines& lines, Softmax operation, int threads) {
    (in_double(lines) ? backward_columns<double> : backward_columns<float>)(lines, operation, threads);
}

}  // namespace online_softmax
