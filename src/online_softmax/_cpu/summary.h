// The state of a row kept so that its smallest terms survive.
//
// The maximal element contributes exactly 1 to s, and a float near 1 has no room for terms below 6e-8.  So the block
// that holds the (first) maximum is summed apart: when s turns out below 2, that one block is summed again without its
// maximal element, and log s = log1p(the rest).  Sums of blocks are added in double.
#pragma once

#include <cmath>
#include <cstdint>

#include "../state/state.h"
#include "blocks.h"

namespace online_softmax {
namespace {

// A row's summary, finished.
template <class T>
struct Finished {
    T m;
    double sum;     // NaN once the row holds a NaN
    double others;  // the sum without its largest element where that one dominates, else NaN
    std::int64_t where;

    // Of the sum; NaN when m is infinite: no probability of such a row is defined.
    double log() const {
        if (is_infinite(m)) return __builtin_nan("");
        return others == others ? std::log1p(others) : std::log(sum);
    }
    T logsumexp(double log) const {
        if (is_infinite(m)) return sum == sum ? m : static_cast<T>(sum);
        return static_cast<T>(m + log);
    }
    // What rounding took from it: exp((x - lse) - low) is a probability even where lse is coarse.
    T logsumexp_low(T lse, double log) const {
        return is_finite(lse) ? static_cast<T>((static_cast<double>(m) - lse) + log) : T(0);
    }
};

template <class T>
struct Summary {
    T m;                 // maximum
    double others;       // sum of exp(x - m) over all blocks but the top one
    double top;          // the same over the first block that holds the maximum
    std::int64_t where;  // where that block begins

    double sum() const { return others + top; }
    // The factor that makes exp(x - m) a probability: NaN when m is infinite, for no probability is defined then.
    T inverse() const { return static_cast<T>(is_infinite(m) ? __builtin_nan("") : 1.0 / sum()); }
    // Whether the sum must be taken again without its largest element.
    bool dominated() const { return !is_infinite(m) && sum() < 2.0; }
    // With that sum, where it is needed.
    Finished<T> finished(double rest) const {
        return dominated() ? Finished<T>{m, 1.0 + rest, rest, where} : Finished<T>{m, sum(), __builtin_nan(""), where};
    }
};

template <class T>
Summary<T> empty_summary() {
    return {-infinity<T>, 0.0, 0.0, 0};
}

// Of two neighbouring parts of a row, `a` the earlier.
template <class T>
ONLINE_SOFTMAX_INLINE Summary<T> combine(const Summary<T>& a, const Summary<T>& b) {
    const bool later = b.m > a.m;
    const Summary<T>& winner = later ? b : a;
    const Summary<T>& loser = later ? a : b;
    const State<double> rest = merge(State<double>{winner.m, winner.others}, State<double>{loser.m, loser.sum()}, Exp());
    return {winner.m, rest.s, winner.top, winner.where};
}

// The summary of a piece while its blocks come in.  Their sums are kept against a reference, the maximum of the first
// block, and not against the maximum: a block can then be read once, for both, unless its maximum lies far above the
// reference, where rounding x - reference would cost digits.
template <class T>
class Running {
public:
    explicit Running(std::int64_t begin = 0) : where_(begin) {}

    T reference() const { return reference_; }
    // Whether a block's sum against the reference, which is finite or has not been set, can be used.
    bool within_reach(T maximum) const { return maximum <= reference_ + reach; }
    // Against which number a block with this maximum is summed.
    T reference_for(T maximum) const {
        return is_finite(reference_) && within_reach(maximum) ? reference_ : larger(maximum, m_);
    }

    void move_to(T reference) {
        if (reference == reference_) return;
        const double factor = rescale_factor<double>(reference_, reference, Exp());
        others_ *= factor, top_ *= factor;
        reference_ = reference;
    }
    // The block at `begin`: its maximum, and its sum against the reference.
    void add(std::int64_t begin, T maximum, double sum) {
        if (maximum > m_) {
            others_ += top_;
            top_ = sum, where_ = begin, m_ = maximum;
        } else {
            others_ += sum;
        }
    }
    Summary<T> summary() const {
        const double factor = rescale_factor<double>(reference_, m_, Exp());
        return {m_, others_ * factor, top_ * factor, where_};
    }

private:
    static constexpr T reach = 4;
    T reference_ = -infinity<T>, m_ = -infinity<T>;
    double others_ = 0.0, top_ = 0.0;
    std::int64_t where_;
};

// `top_block()` gives the elements of the top block; it is called for the rare row that needs them again.
template <class T, class TopBlock>
ONLINE_SOFTMAX_INLINE Finished<T> finish(const Summary<T>& row, std::int64_t length, TopBlock top_block) {
    if (!row.dominated()) return row.finished(0.0);
    alignas(64) T block[block_length];
    const std::int64_t left = length - row.where;
    const std::int64_t count = left < block_length ? left : block_length;
    __builtin_memcpy(block, top_block(), count * sizeof(T));
    block[first_equal(block, count, row.m)] = -infinity<T>;  // whose exponential is 0
    return row.finished(row.others + sum_of_exponentials(block, count, row.m));
}

}  // namespace
}  // namespace online_softmax
