// One row of cross-entropy, block by block: its logits x after scale and softcap, and the mass w q' of its classes.
#pragma once

#include <cstdint>

#include "../../_cpu/kernels.h"
#include "../../_cpu/rows.h"

namespace online_softmax {
namespace {

// c tanh(u / c), and its slope in terms of the result.
template <class T>
ONLINE_SOFTMAX_INLINE T softcapped(T u, T cap, T per_cap) {
    return cap * hyperbolic_tangent(u * per_cap);
}

template <class T>
ONLINE_SOFTMAX_INLINE T slope_of_softcap(T x, T per_cap) {
    const T t = x * per_cap;
    return (T(1) - t) * (T(1) + t);
}

// x = softcap(scale * logits).  Without either, blocks are given where they lie.
template <class T>
class Logits {
public:
    Logits(const CrossEntropyCall& call, std::int64_t row)
        : reader_(call.logits(), call.lines.line(call.logits(), row)),
          scale_(static_cast<T>(call.options.scale)),
          cap_(static_cast<T>(call.options.softcap)) {}

    const T* block(std::int64_t begin, std::int64_t count) {
        const T* in = reader_.block(begin, count);
        if (cap_ != T(0)) {
            const T scale = scale_, cap = cap_, per_cap = T(1) / cap_;
            T* out = buffer_;
#pragma omp simd
            for (std::int64_t i = 0; i < count; ++i) out[i] = softcapped(scale * in[i], cap, per_cap);  // hot: softcap
            return buffer_;
        }
        if (scale_ != T(1)) {
            const T scale = scale_;
            T* out = buffer_;
#pragma omp simd
            for (std::int64_t i = 0; i < count; ++i) out[i] = scale * in[i];
            return buffer_;
        }
        return in;
    }

private:
    Reader<T> reader_;
    T scale_, cap_;
    alignas(64) T buffer_[block_length];
};

// One of them.
template <class T>
struct LogitOfRow {
    const CrossEntropyCall& call;
    std::int64_t row;
    T operator()(std::int64_t index) const { return *Logits<T>(call, row).block(index, 1); }
};

// The target of a row given as a class index.
struct ClassTarget {
    bool given, ignored, valid;
    std::int64_t index;
    double weight;  // of the class; NaN for an index outside the classes, for which nothing is looked up

    template <class T>
    static ClassTarget of(const CrossEntropyCall& call, std::int64_t row, const T* weight) {
        if (call.has_probabilities) return {false, false, false, -1, 1.0};
        const std::int64_t index = call.targets.at(row);
        const bool ignored = index == call.targets.ignore_index;
        const bool valid = !ignored && index >= 0 && index < call.lines.length;
        return {true, ignored, valid, index, valid ? (weight ? weight[index] : 1.0) : ignored ? 0.0 : __builtin_nan("")};
    }
};

// w q' of the classes, q' = (1 - smoothing) q + smoothing / C.
template <class T>
class Mass {
public:
    Mass(const CrossEntropyCall& call, std::int64_t row)
        : weight_(reinterpret_cast<const T*>(call.weight)),
          target_(ClassTarget::of(call, row, weight_)),
          probabilities_(call.probabilities(), call.lines.line(call.probabilities(), row)),
          kept_(static_cast<T>(1.0 - call.options.label_smoothing)),
          spread_(static_cast<T>(call.options.label_smoothing / call.lines.length)) {}

    const T* block(std::int64_t begin, std::int64_t count) {
        T* out = buffer_;
        const T kept = kept_, spread = spread_;
        if (target_.given) {
            for (std::int64_t i = 0; i < count; ++i) out[i] = spread;
            const std::int64_t own = target_.index - begin;
            if (target_.valid && own >= 0 && own < count) out[own] = kept + spread;
        } else {
            const T* q = probabilities_.block(begin, count);
#pragma omp simd
            for (std::int64_t i = 0; i < count; ++i) out[i] = multiply_add(kept, q[i], spread);  // hot: mass
        }
        if (weight_) {
            const T* w = weight_ + begin;
#pragma omp simd
            for (std::int64_t i = 0; i < count; ++i) out[i] *= w[i];  // hot: class weights
        }
        return out;
    }

private:
    const T* weight_;
    ClassTarget target_;
    Reader<T> probabilities_;
    T kept_, spread_;
    alignas(64) T buffer_[block_length];
};

// Whether the mass lies on many classes and not on one.
inline bool spread_out(const CrossEntropyCall& call) {
    return call.has_probabilities || call.options.label_smoothing != 0.0;
}

// Sums over the classes of a row.
struct Terms {
    double mass = 0.0;      // of w q'
    double distance = 0.0;  // of w q' (m - x)
    double spread = 0.0;    // of exp(x - m) (m - x)
};

inline Terms add(const Terms& a, const Terms& b) {
    return {a.mass + b.mass, a.distance + b.distance, a.spread + b.spread};
}

template <class T>
double sum_mass(const CrossEntropyCall& call, std::int64_t row, int threads) {
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
        Mass<T> mass(call, row);
        double sum = 0.0;
        for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
            const T* w = mass.block(i, count);
            sum += sum_block<T>(count, [=](std::int64_t j) { return w[j]; });
        });
        return sum;
    };
    return fold_pieces(call.lines.length, threads, 0.0, piece, [](double a, double b) { return a + b; });
}

template <class T>
Terms sum_terms(const CrossEntropyCall& call, std::int64_t row, T m, bool entropy, int threads) {
    const bool spread = spread_out(call);
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
        Logits<T> logits(call, row);
        Mass<T> mass(call, row);
        Terms sum;
        for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
            const T* x = logits.block(i, count);
            if (spread) {
                const T* w = mass.block(i, count);
                sum.mass += sum_block<T>(count, [=](std::int64_t j) { return w[j]; });
                sum.distance += sum_block<T>(count, [=](std::int64_t j) {
                    const T value = w[j] * (m - x[j]);
                    return w[j] == T(0) ? T(0) : value;  // whatever the logit of a class without mass
                });
            }
            if (entropy) {
                sum.spread += sum_block<T>(count, [=](std::int64_t j) {
                    const T e = exponential(x[j] - m);
                    const T value = e * (m - x[j]);
                    return e == T(0) ? T(0) : value;
                });
            }
        });
        return sum;
    };
    return fold_pieces(call.lines.length, threads, Terms(), piece, add);
}

}  // namespace
}  // namespace online_softmax
