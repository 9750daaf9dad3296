// The gradient of one row of cross-entropy.
#pragma once

#include <cmath>
#include <cstdint>

#include "../../_cpu/pieces.h"
#include "cpu_row.h"

namespace online_softmax {
namespace {

struct Incoming {
    double loss, lse;  // the gradients of both
};

template <class T>
void write_zeros(const CrossEntropyCall& call, std::int64_t row, int threads) {
    const Operand& array = call.gradient();
    char* to = call.lines.line(array, row);
    for_each_piece(call.lines.length, threads, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        Writer<T> out(array, to);
        for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
            T* g = out.block(i);
            for (std::int64_t j = 0; j < count; ++j) g[j] = T(0);
            out.finish_block(i, count);
        });
    });
}

// A row's gradient: exp(x - lse) * factor - pull * (w q'), times the slope of the softcap; `own` at class `own_class`, if
// any.  Or nothing but zeros, whatever the row holds.
template <class T>
struct RowGradient {
    T lse, factor, pull;
    std::int64_t own_class;  // -1: none
    T own;
    bool zeros;
};

template <class T>
void write_scaled_gradient(const CrossEntropyCall& call, std::int64_t row, const RowGradient<T>& numbers, int threads) {
    const auto& [lse, factor, pull, own_class, own, zeros] = numbers;
    const Operand& array = call.gradient();
    char* to = call.lines.line(array, row);
    const bool spread = spread_out(call), capped = call.options.softcap != 0.0;
    const T per_cap = T(1) / static_cast<T>(capped ? call.options.softcap : 1.0);
    const bool at_once = sizeof(T) == sizeof(float) && both_sixteen_bits(call.logits(), array) && !spread && !capped &&
                         call.options.scale == 1.0 && is_finite(lse) && is_finite(factor);
    const char* from = call.lines.line(call.logits(), row);
    for_each_piece(call.lines.length, threads, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        if (at_once) {
            map_sixteen_bits<T>(array.dtype, from, to, begin, end, [lse = numbers.lse, factor = numbers.factor](T x) {
                return exponential(x - lse) * factor;
            });
            if (own_class >= begin && own_class < end) store(array.dtype, &own, 1, to + 2 * own_class, 2);
            return;
        }
        Logits<T> logits(call, row);
        Mass<T> mass(call, row);
        Writer<T> out(array, to);
        for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
            const T* x = logits.block(i, count);
            T* g = out.block(i);
            if (spread) {
                const T* w = mass.block(i, count);
#pragma omp simd
                for (std::int64_t j = 0; j < count; ++j) {
                    g[j] = multiply_add(exponential(x[j] - lse), factor, -pull * w[j]);  // hot: gradient of a spread mass
                }
            } else {
#pragma omp simd
                for (std::int64_t j = 0; j < count; ++j) g[j] = exponential(x[j] - lse) * factor;  // hot: gradient
            }
            if (capped) {  // x is in a buffer then, whatever g overwrites
#pragma omp simd
                for (std::int64_t j = 0; j < count; ++j) g[j] *= slope_of_softcap(x[j], per_cap);  // hot: capped gradient
            }
            if (own_class >= i && own_class < i + count) g[own_class - i] = own;
            out.finish_block(i, count);
        });
    });
}

// `logit(index)` is one of the row's x.
template <class T, class Logit>
RowGradient<T> gradient_of_row(const CrossEntropyCall& call, std::int64_t row, const Logit& logit, T lse, T low,
                               double mass_sum, const Incoming& grad, const double (&divisors)[2]) {
    const ClassTarget target = ClassTarget::of(call, row, reinterpret_cast<const T*>(call.weight));
    if (target.ignored && grad.lse == 0.0) return {T(0), T(0), T(0), -1, T(0), true};
    // Of (p slope - pull w q') dx / dlogit.
    const double pull = target.ignored ? 0.0 : grad.loss / divisors[0];
    const double z_share = target.ignored ? 0.0 : grad.loss / divisors[1];
    const double z_slope = call.options.z_loss == 0.0 ? 0.0 : 2.0 * call.options.z_loss * lse * z_share;
    const double slope = pull * mass_sum + z_slope + grad.lse;
    const double inverse = is_infinite(lse) ? __builtin_nan("") : std::exp(-static_cast<double>(low));
    const double scale = call.options.scale;
    // All the mass on one class: there the gradient is the difference p - 1, which asks for every digit of p.  Made
    // first, since the gradient may take the memory of the logits.
    const bool one_class = target.valid && !spread_out(call) && pull != 0.0;
    double own = 0.0;
    if (one_class) {
        const double x = logit(target.index), cap = call.options.softcap;
        const double p = is_infinite(lse) ? inverse : std::exp((x - lse) - low);
        own = (p * slope - pull * target.weight) * scale;
        if (cap != 0.0) own *= slope_of_softcap(x, 1.0 / cap);
    }
    const T factor = static_cast<T>(inverse * slope * scale);
    return {lse, factor, static_cast<T>(pull * scale), one_class ? target.index : -1, static_cast<T>(own), false};
}

template <class T>
void write_gradient(const CrossEntropyCall& call, std::int64_t row, const RowGradient<T>& numbers, int threads) {
    if (numbers.zeros) return write_zeros<T>(call, row, threads);  // selected, not multiplied: the row may hold NaN
    write_scaled_gradient(call, row, numbers, threads);
}

}  // namespace
}  // namespace online_softmax
