// softmax, log_softmax and logsumexp of rows: two sweeps over each, the second of which finds it in the second cache.
#include "cpu.h"

#include "../../_cpu/pieces.h"
#include "../../_cpu/rows.h"

namespace online_softmax {
namespace {

template <class T>
void write_probabilities(const T* x, std::int64_t count, T m, T inverse, T* y) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = exponential(x[i] - m) * inverse;  // hot: softmax
}

template <class T>
void write_logarithms(const T* x, std::int64_t count, T m, T log, T* y) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - m) - log;  // hot: log_softmax
}

template <class T>
Summary<T> summarise_row(const Operand& array, const char* row, std::int64_t length, int threads) {
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
        Reader<T> x(array, row);
        return summarise_piece<T>(x, begin, end);
    };
    return fold_pieces(length, threads, empty_summary<T>(), piece, combine<T>);
}

// Softmax of a row of one block: its exponentials stay in the first cache until they are divided by their sum.
template <class T>
void softmax_of_block(const Operand& in, const char* row, std::int64_t count, const Operand& out, char* result) {
    Reader<T> reader(in, row);
    Writer<T> writer(out, result);
    const T* x = reader.block(0, count);
    T* y = writer.block(0);
    const T m = maximum(x, count);
    const T inverse = Summary<T>{m, 0.0, exponentiate(x, count, m, y), 0}.inverse();
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] *= inverse;  // hot: softmax of a block
    writer.finish_block(0, count);
}

template <class T>
void write_row(const Lines& lines, Softmax operation, const char* row, T m, T factor, char* result, int threads) {
    const Operand &in = lines.operand[0], &out = lines.operand[1];
    const bool softmax = operation == Softmax::softmax;
    const auto write = softmax ? write_probabilities<T> : write_logarithms<T>;
    // A factor that is a number means that no element is NaN or +inf.
    const bool at_once = sizeof(T) == sizeof(float) && both_sixteen_bits(in, out) && factor == factor;
    for_each_piece(lines.length, threads, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        if (at_once && softmax) {
            return map_sixteen_bits<T>(in.dtype, row, result, begin, end, [=](T x) { return exponential(x - m) * factor; });
        }
        if (at_once) {
            return map_sixteen_bits<T>(in.dtype, row, result, begin, end, [=](T x) { return (x - m) - factor; });
        }
        Reader<T> x(in, row);
        Writer<T> y(out, result);
        for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
            write(x.block(i, count), count, m, factor, y.block(i));
            y.finish_block(i, count);
        });
    });
}

template <class T>
void forward_row(const Lines& lines, Softmax operation, std::int64_t index, int threads) {
    const Operand &in = lines.operand[0], &out = lines.operand[1];
    const char* row = lines.line(in, index);
    char* result = lines.line(out, index);
    if (operation == Softmax::softmax && lines.length <= block_length) {
        return softmax_of_block<T>(in, row, lines.length, out, result);
    }
    const Summary<T> summary = summarise_row<T>(in, row, lines.length, threads);
    if (operation == Softmax::softmax) {
        return write_row(lines, operation, row, summary.m, summary.inverse(), result, threads);
    }
    Reader<T> x(in, row);
    const Finished<T> state = finish_row(summary, x, lines.length);
    const double log = state.log();
    if (operation == Softmax::log_softmax) {
        return write_row(lines, operation, row, state.m, static_cast<T>(log), result, threads);
    }
    const T lse = state.logsumexp(log);
    store(out.dtype, &lse, 1, result, size_of(out.dtype));
}

template <class T>
void forward_rows(const Lines& lines, Softmax operation, int threads) {
    for_each_line(lines.count, lines.length, threads, [&](std::int64_t index, int share) {
        forward_row<T>(lines, operation, index, share);
    });
}

}  // namespace

void ONLINE_SOFTMAX_ISA::softmax_forward(const Lines& lines, Softmax operation, int threads) {
    if (lines.columns) return softmax_forward_columns(lines, operation, threads);
    (in_double(lines) ? forward_rows<double> : forward_rows<float>)(lines, operation, threads);
}

}  // namespace online_softmax
