// softmax, log_softmax and logsumexp, and their gradients, along any axis but the last, or of short rows: many at once.
//
// A tile of columns is summarised down its length.  The result is then written along whole rows of the array, since a
// second walk down a tile would touch a new page of memory at every row; only small arrays are written tile by tile,
// while they are in cache.
#include "../../_cpu/columns.h"
#include "../../_cpu/one_block_tile.h"
#include "cpu.h"

namespace online_softmax {
namespace {

constexpr std::int64_t cached_bytes = 1 << 19;

// What writing needs of each column: softmax m and 1/s, log_softmax m and log s, the gradients one sum.
template <class T>
struct Numbers {
    T *first, *second;
};

// Where row i of an operand begins, at `column`, in the part of it that starts with line `line`.
inline char* row_of(const Lines& lines, int operand, std::int64_t line, std::int64_t i, std::int64_t column) {
    const Operand& o = lines.operand[operand];
    return lines.line(o, line) + i * o.axis_stride + column * o.strides[lines.dimensions - 1];
}

// Runs summarise(tile, threads, numbers of its first column), then write(part, rows [begin, end), first column,
// how many, their numbers): tile by tile, or for whole rows once all is summarised.  A part is one index of the
// dimensions besides rows and columns.
template <class T, class Summarise, class Write>
void summarise_and_write(const Tiles<T>& tiles, int operand, int threads, Summarise summarise, Write write) {
    const Lines& lines = tiles.lines;
    const std::int64_t length = lines.length;
    std::int64_t stride = lines.operand[operand].axis_stride;
    stride = stride < 0 ? -stride : stride;
    if (length * stride <= cached_bytes) {
        for_each_tile(tiles, threads, [&](std::int64_t index, int share) {
            Row<T> first, second;
            const Numbers<T> numbers{first.at, second.at};
            summarise(index, share, numbers);
            const std::int64_t column = index % tiles.across * tile_width<T>;
            write(index / tiles.across, 0, length, column, tiles.width(index), numbers);
        });
        return;
    }
    Scratch<T> first(lines.count), second(lines.count);
    for_each_tile(tiles, threads, [&](std::int64_t index, int share) {
        const std::int64_t line = tiles.first_line(index);
        summarise(index, share, Numbers<T>{&first[line], &second[line]});
    });
    parallel(lines.count / tiles.columns * length, tiles.columns, threads, [&](std::int64_t begin, std::int64_t end) {
        while (begin < end) {
            const std::int64_t part = begin / length;
            const std::int64_t stop = end < (part + 1) * length ? end : (part + 1) * length;
            const std::int64_t line = part * tiles.columns;
            const Numbers<T> numbers{&first[line], &second[line]};
            write(part, begin - part * length, stop - part * length, 0, tiles.columns, numbers);
            begin = stop;
        }
    });
}

// A row of the array, across columns that each have numbers of their own.
template <class T>
void write_columns(Softmax operation, const T* x, std::int64_t count, const T* m, const T* factor, T* y) {
    if (operation == Softmax::log_softmax) {
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) y[j] = (x[j] - m[j]) - factor[j];  // hot: log_softmax
        return;
    }
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) y[j] = exponential(x[j] - m[j]) * factor[j];  // hot: softmax
}

template <class T>
void forward_columns(const Lines& lines, Softmax operation, int threads) {
    const Tiles<T> tiles(lines);
    const bool softmax = operation == Softmax::softmax, one_block = softmax && lines.length <= block_length;
    const auto finish = [&](int c, const Finished<T>& state, const Numbers<T>& numbers) {
        const double log = state.log();
        numbers.first[c] = operation == Softmax::logsumexp ? state.logsumexp(log) : state.m;
        numbers.second[c] = static_cast<T>(log);
    };
    const auto summarise = [&](std::int64_t index, int share, const Numbers<T>& numbers) {
        const Tile<T> tile(tiles, 0, index);
        if (!softmax && lines.length > 0 && lines.length <= block_length) {
            const OneBlockTile<T> block(tile, lines.length);
            return block.finish([&](int c, const Finished<T>& state) { finish(c, state, numbers); });
        }
        const auto piece = [&](std::int64_t begin, std::int64_t end) { return summarise_columns(tile, begin, end, one_block); };
        const Summaries<T> all = fold_pieces(lines.length, share, empty_summaries<T>(), piece, combine_columns<T>);
        if (softmax) {
            for (int c = 0; c < tile.width; ++c) numbers.first[c] = all.column[c].m, numbers.second[c] = all.column[c].inverse();
            return;
        }
        for (int c = 0; c < tile.width; ++c) finish(c, finish_column(all.column[c], tile, c, lines.length), numbers);
    };
    if (operation == Softmax::logsumexp) {
        for_each_tile(tiles, threads, [&](std::int64_t index, int share) {
            Row<T> lse, log;
            summarise(index, share, {lse.at, log.at});
            Tile<T>(tiles, 1, index).store_numbers(lse.at);
        });
        return;
    }
    const Operand in = tiles.across_columns(0), out = tiles.across_columns(1);
    summarise_and_write(tiles, 0, threads, summarise, [&](std::int64_t part, std::int64_t begin, std::int64_t end,
                                                          std::int64_t column, std::int64_t width, const Numbers<T>& numbers) {
        for (std::int64_t i = begin; i < end; ++i) {
            Reader<T> reader(in, row_of(lines, 0, part * tiles.columns, i, column));
            Writer<T> writer(out, row_of(lines, 1, part * tiles.columns, i, column));
            for_each_block(0, width, [&](std::int64_t c, std::int64_t count) {
                const T *x = reader.block(c, count), *m = numbers.first + c, *factor = numbers.second + c;
                write_columns(operation, x, count, m, factor, writer.block(c));
                writer.finish_block(c, count);
            });
        }
    });
}

// The sum of grad * y (softmax) or of grad (log_softmax) down each column, in the order of rows.
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
Sums<T> sum_columns(const Tile<T>& grad, const Tile<T>& in, Softmax operation, std::int64_t begin, std::int64_t end) {
    Row<T> g{}, y{};
    Sums<T> sums;
    const int padded = grad.padded;
    for_each_block(begin, end, [&](std::int64_t first, std::int64_t count) {
        const Row<T> block = sum_block_of_columns<T>(count, padded, [&](std::int64_t i, T* lane) {
            const bool ahead = first + i + rows_ahead < end;
            if (ahead) grad.prefetch_row(first + i + rows_ahead);
            grad.load_row(first + i, g.at);
            if (operation == Softmax::log_softmax) {
#pragma omp simd
                for (int c = 0; c < padded; ++c) lane[c] += g.at[c];
            } else {
                if (ahead) in.prefetch_row(first + i + rows_ahead);
                in.load_row(first + i, y.at);
#pragma omp simd
                for (int c = 0; c < padded; ++c) lane[c] += g.at[c] * y.at[c];
            }
        });
        for (int c = 0; c < padded; ++c) sums.column[c] += block.at[c];
    });
    return sums;
}

template <class T>
void backward_columns(const Lines& lines, Softmax operation, int threads) {
    const Tiles<T> tiles(lines);
    const auto summarise = [&](std::int64_t index, int share, const Numbers<T>& numbers) {
        const Tile<T> grad(tiles, 0, index), in(tiles, 1, index);
        const auto piece = [&](std::int64_t begin, std::int64_t end) { return sum_columns(grad, in, operation, begin, end); };
        const Sums<T> sums = fold_pieces(lines.length, share, Sums<T>(), piece, add<T>);
        for (int c = 0; c < grad.width; ++c) numbers.first[c] = static_cast<T>(sums.column[c]);
    };
    const Operand grad = tiles.across_columns(0), in = tiles.across_columns(1), out = tiles.across_columns(2);
    summarise_and_write(tiles, 1, threads, summarise, [&](std::int64_t part, std::int64_t begin, std::int64_t end,
                                                          std::int64_t column, std::int64_t width, const Numbers<T>& numbers) {
        for (std::int64_t i = begin; i < end; ++i) {
            Reader<T> grads(grad, row_of(lines, 0, part * tiles.columns, i, column));
            Reader<T> outputs(in, row_of(lines, 1, part * tiles.columns, i, column));
            Writer<T> writer(out, row_of(lines, 2, part * tiles.columns, i, column));
            for_each_block(0, width, [&](std::int64_t c, std::int64_t count) {
                const T *g = grads.block(c, count), *y = outputs.block(c, count), *sum = numbers.first + c;
                T* dx = writer.block(c);
                if (operation == Softmax::softmax) {
#pragma omp simd
                    for (std::int64_t j = 0; j < count; ++j) dx[j] = y[j] * (g[j] - sum[j]);
                } else {
#pragma omp simd
                    for (std::int64_t j = 0; j < count; ++j) {
                        dx[j] = multiply_add(-sum[j], exponential_up_to_limit(y[j]), g[j]);
                    }
                }
                writer.finish_block(c, count);
            });
        }
    });
}

}  // namespace

void ONLINE_SOFTMAX_ISA::softmax_forward_columns(const Lines& lines, Softmax operation, int threads) {
    (in_double(lines) ? forward_columns<double> : forward_columns<float>)(lines, operation, threads);
}

void ONLINE_SOFTMAX_ISA::softmax_backward_columns(const Lines& lines, Softmax operation, int threads) {
    (in_double(lines) ? backward_columns<double> : backward_columns<float>)(lines, operation, threads);
}

}  // namespace online_softmax
