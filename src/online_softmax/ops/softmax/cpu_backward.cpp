// The gradients of softmax, log_softmax and logsumexp, for rows.
#include "../../_cpu/pieces.h"
#include "../../_cpu/rows.h"
#include "cpu.h"

namespace online_softmax {
namespace {

template <class T>
void write_softmax_gradient(const T* grad, const T* y, std::int64_t count, T sum, T* dx) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) dx[i] = y[i] * (grad[i] - sum);  // hot: softmax backward
}

template <class T>
void write_log_softmax_gradient(const T* grad, const T* y, std::int64_t count, T sum, T* dx) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        dx[i] = multiply_add(-sum, exponential_up_to_limit(y[i]), grad[i]);  // hot: log_softmax backward
    }
}

template <class T>
void write_logsumexp_gradient(const T* x, std::int64_t count, T grad, T lse, T* dx) {
    if (grad - grad != T(0)) {  // infinite or NaN: times the exponential of -inf it would not be 0
        for (std::int64_t i = 0; i < count; ++i) {
            dx[i] = x[i] == -infinity<T> ? T(0) : grad * exponential_up_to_limit(x[i] - lse);
        }
        return;
    }
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        dx[i] = grad * exponential_up_to_limit(x[i] - lse);  // hot: logsumexp backward
    }
}

template <class T>
void backward_row(const Lines& lines, Softmax operation, std::int64_t index, int threads) {
    const Operand &grad = lines.operand[0], &y = lines.operand[1], &dx = lines.operand[2];
    const char* grad_row = lines.line(grad, index);
    const char* y_row = lines.line(y, index);
    char* dx_row = lines.line(dx, index);
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
        Reader<T> g(grad, grad_row), p(y, y_row);
        double sum = 0.0;
        for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
            const T* a = g.block(i, count);
            if (operation == Softmax::log_softmax) {
                sum += sum_block<T>(count, [=](std::int64_t j) { return a[j]; });
            } else {
                const T* b = p.block(i, count);
                sum += sum_block<T>(count, [=](std::int64_t j) { return a[j] * b[j]; });
            }
        });
        return sum;
    };
    const double sum = fold_pieces(lines.length, threads, 0.0, piece, [](double a, double b) { return a + b; });
    const auto write = operation == Softmax::softmax ? write_softmax_gradient<T> : write_log_softmax_gradient<T>;
    for_each_piece(lines.length, threads, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        Reader<T> g(grad, grad_row), p(y, y_row);
        Writer<T> out(dx, dx_row);
        for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
            write(g.block(i, count), p.block(i, count), count, static_cast<T>(sum), out.block(i));
            out.finish_block(i, count);
        });
    });
}

template <class T>
void backward_rows(const Lines& lines, Softmax operation, int threads) {
    for_each_line(lines.count, lines.length, threads, [&](std::int64_t index, int share) {
        backward_row<T>(lines, operation, index, share);
    });
}

// d logsumexp / dx = exp(x - lse).  A row whose lse is +inf shares the gradient among its +inf elements; a row of -inf,
// and any -inf element, gets 0.
template <class T>
void logsumexp_backward_row(const Lines& lines, std::int64_t index, int threads) {
    const Operand &in = lines.operand[0], &out = lines.operand[3];
    const char* row = lines.line(in, index);
    char* dx_row = lines.line(out, index);
    T grad, lse;
    load(lines.operand[1].dtype, lines.line(lines.operand[1], index), 0, 1, &grad);
    load(lines.operand[2].dtype, lines.line(lines.operand[2], index), 0, 1, &lse);
    T share = T(0);
    if (lse == infinity<T>) {
        const auto piece = [&](std::int64_t begin, std::int64_t end) {
            Reader<T> x(in, row);
            double infinite = 0.0;
            for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
                const T* a = x.block(i, count);
                infinite += sum_block<T>(count, [=](std::int64_t j) { return T(a[j] == infinity<T>); });
            });
            return infinite;
        };
        share = grad / static_cast<T>(fold_pieces(lines.length, threads, 0.0, piece, [](double a, double b) { return a + b; }));
    }
    for_each_piece(lines.length, threads, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        Reader<T> x(in, row);
        Writer<T> dx(out, dx_row);
        for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
            const T* a = x.block(i, count);
            T* d = dx.block(i);
            if (is_infinite(lse)) {
                for (std::int64_t j = 0; j < count; ++j) d[j] = a[j] == infinity<T> ? share : T(0);
            } else {
                write_logsumexp_gradient(a, count, grad, lse, d);
            }
            dx.finish_block(i, count);
        });
    });
}

template <class T>
void logsumexp_backward_rows(const Lines& lines, int threads) {
    for_each_line(lines.count, lines.length, threads,
                  [&](std::int64_t index, int share) { logsumexp_backward_row<T>(lines, index, share); });
}

}  // namespace

void ONLINE_SOFTMAX_ISA::softmax_backward(const Lines& lines, Softmax operation, int threads) {
    if (lines.columns) return softmax_backward_columns(lines, operation, threads);
    (in_double(lines) ? backward_rows<double> : backward_rows<float>)(lines, operation, threads);
}

void ONLINE_SOFTMAX_ISA::logsumexp_backward(const Lines& lines, int threads) {
    (in_double(lines) ? logsumexp_backward_rows<double> : logsumexp_backward_rows<float>)(lines, threads);
}

}  // namespace online_softmax
