// Merging partial results of attention, each read once, and the gradient of that.
#include "cpu.h"

#include <cmath>

#include "../../_cpu/convert.h"
#include "../../_cpu/pieces.h"

namespace online_softmax {
namespace {

constexpr std::int64_t few = 64;  // weights of so many partial results stay on the stack

// The share of each partial result in the whole, and the state of the whole.
template <class T>
State<T> weigh(const Partials& partials, std::int64_t row, T* weights) {
    T m = -infinity<T>;
    for (std::int64_t i = 0; i < partials.count; ++i) {
        m = larger(weights[i] = reinterpret_cast<const T*>(partials.lses[i])[row], m);
    }
    T s = T(0);
    for (std::int64_t i = 0; i < partials.count; ++i) {
        const T lse = weights[i];
        weights[i] = lse == -infinity<T> ? T(0) : rescale_factor(lse, m, Exp());
        s += weights[i];
    }
    for (std::int64_t i = 0; i < partials.count; ++i) weights[i] /= s == T(0) ? T(1) : s;
    return {m, s};
}

template <class T>
const T* block_of(const Partials& partials, const char* array, std::int64_t at, std::int64_t count, T* buffer) {
    const char* from = array + at * size_of(partials.dtype);
    if (partials.dtype == dtype_of<T>) return reinterpret_cast<const T*>(from);
    load(partials.dtype, from, size_of(partials.dtype), count, buffer);
    return buffer;
}

template <class T>
void store_block(const Partials& partials, const T* from, std::int64_t count, char* array, std::int64_t at) {
    store(partials.dtype, from, count, array + at * size_of(partials.dtype), size_of(partials.dtype));
}

template <class Body>
void blocks_of_row(std::int64_t size, Body body) {
    for (std::int64_t i = 0; i < size; i += block_length) body(i, size - i < block_length ? size - i : block_length);
}

template <class T>
void merge_row(const Partials& partials, char* out, char* lse, std::int64_t row, T* weights) {
    alignas(64) T sum[block_length], buffer[block_length];
    const State<T> whole = weigh(partials, row, weights);
    reinterpret_cast<T*>(lse)[row] = whole.s == T(0) ? whole.m : whole.m + static_cast<T>(std::log(whole.s));
    blocks_of_row(partials.size, [&](std::int64_t i, std::int64_t count) {
        for (std::int64_t j = 0; j < count; ++j) sum[j] = T(0);
        for (std::int64_t p = 0; p < partials.count; ++p) {
            const T w = weights[p];
            if (w == T(0)) continue;  // takes no part, even if its out holds NaN
            const T* x = block_of(partials, partials.outs[p], row * partials.size + i, count, buffer);
#pragma omp simd
            for (std::int64_t j = 0; j < count; ++j) sum[j] = multiply_add(w, x[j], sum[j]);  // hot: merge
        }
        store_block(partials, sum, count, out, row * partials.size + i);
    });
}

template <class T>
void gradient_row(const Partials& partials, const MergeGradient& in, std::int64_t row, T* weights) {
    alignas(64) T grad_buffer[block_length], out_buffer[block_length], buffer[block_length], result[block_length];
    weigh(partials, row, weights);
    const T along = in.grad_lse ? reinterpret_cast<const T*>(in.grad_lse)[row] : T(0);
    for (std::int64_t p = 0; p < partials.count; ++p) {
        const T w = weights[p];
        T pull = along;
        blocks_of_row(partials.size, [&](std::int64_t i, std::int64_t count) {
            const std::int64_t at = row * partials.size + i;
            const T* grad = block_of(partials, in.grad_out, at, count, grad_buffer);
            if (in.grad_outs[p]) {
#pragma omp simd
                for (std::int64_t j = 0; j < count; ++j) result[j] = w == T(0) ? T(0) : w * grad[j];
                store_block(partials, result, count, in.grad_outs[p], at);
            }
            if (!in.grad_lses[p] || w == T(0)) return;
            const T* average = block_of(partials, in.out, at, count, out_buffer);
            const T* x = block_of(partials, partials.outs[p], at, count, buffer);
            pull += sum_block<T>(count, [=](std::int64_t j) { return grad[j] * (x[j] - average[j]); });
        });
        if (in.grad_lses[p]) reinterpret_cast<T*>(in.grad_lses[p])[row] = w == T(0) ? T(0) : w * pull;
    }
}

template <class T, class Row>
void for_each_row(const Partials& partials, Row row) {
    parallel(partials.rows, partials.size * partials.count, partials.threads, [&](std::int64_t begin, std::int64_t end) {
        T on_stack[few];
        Scratch<T> beyond(partials.count > few ? partials.count : 0);
        T* weights = partials.count > few ? &beyond[0] : on_stack;
        for (std::int64_t i = begin; i < end; ++i) row(i, weights);
    });
}

}  // namespace

namespace ONLINE_SOFTMAX_ISA {

void merge_partials(const Partials& partials, char* out, char* lse) {
    if (partials.in_double) {
        return for_each_row<double>(partials, [&](std::int64_t i, double* w) { merge_row(partials, out, lse, i, w); });
    }
    for_each_row<float>(partials, [&](std::int64_t i, float* w) { merge_row(partials, out, lse, i, w); });
}

void merge_partials_backward(const Partials& partials, const MergeGradient& in) {
    if (partials.in_double) {
        return for_each_row<double>(partials, [&](std::int64_t i, double* w) { gradient_row(partials, in, i, w); });
    }
    for_each_row<float>(partials, [&](std::int64_t i, float* w) { gradient_row(partials, in, i, w); });
}

}  // namespace ONLINE_SOFTMAX_ISA
}  // namespace online_softmax
