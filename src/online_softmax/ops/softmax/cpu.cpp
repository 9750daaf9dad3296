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
Finished<T> summarise_row(const Operand& array, const char* row, std::int64_t length, int threads) {
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
        Reader<T> x(array, row);
        return summarise_piece<T>(x, begin, end);
    };
    const Summary<T> summary = fold_pieces(length, threads, empty_summary<T>(), piece, combine<T>);
    Reader<T> x(array, row);
    return finish_row(summary, x, length);
}

template <class T>
void forward_row(const Lines& lines, Softmax operation, std::int64_t index, int threads) {
    const Operand &in = lines.operand[0], &out = lines.operand[1];
    const char* row = lines.line(in, index);
    char* result = lines.line(out, index);
    const Finished<T> state = summarise_row<T>(in, row, lines.length, threads);
    if (operation == Softmax::logsumexp) {
        const T lse = state.logsumexp();
        return store(out.dtype, &lse, 1, result, size_of(out.dtype));
    }
    const bool softmax = operation == Softmax::softmax;
    const T m = state.m, factor = softmax ? state.inverse() : static_cast<T>(state.log);
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
