// What is summed over a row of logits, and the loss and gradient factors that follow from it.
#pragma once
#include "../../_cuda/rows.cuh"
#include "../../_cuda/summary.cuh"
#include "classes.cuh"

namespace online_softmax {

constexpr int kFound = 2 + (kSpread ? 2 : 0) + (kAux ? 2 : 0);  // numbers in a warp's record

__device__ __forceinline__ float as_number(int bits, float) { return __int_as_float(bits); }
__device__ __forceinline__ double as_number(int bits, double) { return double(bits); }
__device__ __forceinline__ int as_index(float number) { return __float_as_int(number); }
__device__ __forceinline__ int as_index(double number) { return int(number); }

// sum of exp(x - to) (x - to) from the same sum against maximum `from`.
template <class A>
__device__ __forceinline__ A shifted_energy(A from, A s, A energy, A to) {
    return rescale_factor(from, to, Exp()) * (energy + s * (s == A(0) ? A(0) : from - to));
}

// sum of w q' (m - x) from the same sum against maximum `from`.  Mass on a row's -inf has made it infinite already.
template <class A>
__device__ __forceinline__ A shifted_gap(A from, A gap, A mass, A to) {
    return from == to || mass == A(0) ? gap : gap + mass * (to - from);
}

template <class A>
struct RowSums {
    A m = -infinity<A>(), s = 0;    // the state
    A gap = 0, mass = 0;            // sum of w q' (m - x), and of w q': far from zero lse - x would lose its digits
    A energy = 0;                   // sum of exp(x - m) (x - m)
    int first_maximum = 0x7fffffff, first_nan = 0x7fffffff;

    // Adds up what the lanes hold against the same `m`.
    __device__ __forceinline__ void over_lanes() {
        s = lane_sum<kLanes>(s);
        if constexpr (kSpread) gap = lane_sum<kLanes>(gap), mass = lane_sum<kLanes>(mass);
        if constexpr (kAux) {
            energy = lane_sum<kLanes>(energy);
            first_maximum = lane_minimum<kLanes>(first_maximum);
            first_nan = lane_minimum<kLanes>(first_nan);
        }
    }

    // Sums that were taken straight from logits become a state, whose maximum is no NaN.
    __device__ __forceinline__ void become_state() {
        const State<A> state = state_of(m, s);
        m = state.m, s = state.s;
    }

    __device__ __forceinline__ A reference() const { return m == -infinity<A>() ? A(0) : m; }

    // One index travels: a row with a NaN has no use for its maximum.
    struct Record { A at[kFound]; };
    __device__ __forceinline__ Record record() const {
        Record found;
        found.at[0] = m, found.at[1] = s;
        if constexpr (kSpread) found.at[2] = gap, found.at[3] = mass;
        if constexpr (kAux) found.at[kFound - 2] = energy, found.at[kFound - 1] = as_number(predicted(), A());
        return found;
    }
    __device__ __forceinline__ int predicted() const { return is_nan(s) ? first_nan : first_maximum; }

    __device__ __forceinline__ void merge(const A* records) {
        const State<A> row = merge_records<A, kFound>(records, ExpOf());
        m = row.m, s = row.s;
        if constexpr (kSpread) {
            gap = mass = 0;
            for_my_records<A, kFound>(records, [&](const A* r) {
                gap += shifted_gap(r[0], r[2], r[3], row.m), mass += r[3];
            });
            gap = lane_sum<32>(gap), mass = lane_sum<32>(mass);
        }
        if constexpr (kAux) {
            energy = 0, first_maximum = first_nan = 0x7fffffff;
            for_my_records<A, kFound>(records, [&](const A* r) {
                energy += shifted_energy(r[0], r[1], r[kFound - 2], row.m);
                const int index = as_index(r[kFound - 1]);
                if (is_nan(r[1])) first_nan = min(first_nan, index);
                else if (r[0] == row.m) first_maximum = min(first_maximum, index);
            });
            energy = lane_sum<32>(energy);
            first_maximum = lane_minimum<32>(first_maximum);
            first_nan = lane_minimum<32>(first_nan);
        }
    }
    // One more record, thread by thread.
    template <class ExpFn = Exp>
    __device__ __forceinline__ void absorb(const A* record) {
        const State<A> both = online_softmax::merge(State<A>{m, s}, State<A>{record[0], record[1]}, ExpFn());
        if constexpr (kSpread) {
            gap = shifted_gap(m, gap, mass, both.m) + shifted_gap(record[0], record[2], record[3], both.m);
            mass += record[3];
        }
        if constexpr (kAux) {
            energy = shifted_energy(m, s, energy, both.m) + shifted_energy(record[0], record[1], record[kFound - 2], both.m);
            const int index = as_index(record[kFound - 1]);
            if (m != both.m) first_maximum = 0x7fffffff;
            if (is_nan(record[1])) first_nan = min(first_nan, index);
            else if (record[0] == both.m) first_maximum = min(first_maximum, index);
        }
        m = both.m, s = both.s;
    }
    // What the lanes of a warp absorbed, against their common maximum; then over_lanes() adds up.
    __device__ __forceinline__ void rebase(A common) {
        if constexpr (kSpread) gap = shifted_gap(m, gap, mass, common);
        if constexpr (kAux) {
            energy = shifted_energy(m, s, energy, common);
            if (m != common) first_maximum = 0x7fffffff;
        }
        s *= rescale_factor(m, common, Exp());
        m = common;
    }
    __device__ __forceinline__ A entropy() const { return log(s) - energy / s; }
};

// The sums over a thread's logits, which their exponentials replace if KEEP; `m` is the warp's maximum.
template <bool KEEP, class ExpFn, class A, class MassOf>
__device__ __forceinline__ RowSums<A> sums_of(A* values, A m, const Part& part, int thread, const MassOf& mass_of) {
    RowSums<A> sums;
    if constexpr (kSpread) {
        const A reference = m == -infinity<A>() ? A(0) : m;
        for_each<kSlots, kElements, kGroup>(part, thread, [&](int i, int position) {
            const A mass = mass_of(position + part.column);
            sums.mass += mass;
            sums.gap += mass != A(0) ? mass * (reference - values[i]) : A(0);  // no mass, no part: not even of -inf
        });
    }
    if constexpr (kAux) {
        for_each<kSlots, kElements, kGroup>(part, thread, [&](int i, int position) {
            if (values[i] == m) sums.first_maximum = min(sums.first_maximum, position + part.column);
            if (is_nan(values[i])) sums.first_nan = min(sums.first_nan, position + part.column);
        });
    }
    sums.m = m;
    sums.s = exponential_sum<KEEP, kValues>(values, m, ExpFn(), [&](A y, A d) {
        if constexpr (kAux) sums.energy += y > A(0) ? y * d : A(0);
    });
    sums.over_lanes();
    sums.become_state();
    return sums;
}

template <class A>
struct RowLoss {
    const RowSums<A>& sums;
    bool kept, known;
    A label_mass;   // on the label's class alone, smoothing's share aside
    A spread;       // what smoothing gives every class
    A mass;         // of all classes

    __device__ __forceinline__ RowLoss(const RowSums<A>& row, bool is_kept, bool is_known, A label_weight, A kept_mass,
                                       A smoothing_spread)
        : sums(row), kept(is_kept), known(is_known), label_mass(label_weight * kept_mass), spread(smoothing_spread) {
        if (kProbabilities) mass = row.mass;
        else if (!kWeighted) mass = 1;  // (1 - eps) + C (eps / C), without its rounding
        else mass = label_mass + (kSmoothing ? spread * row.mass : A(0));
    }

    __device__ __forceinline__ A lse() const { return sums.m + log(sums.s); }
    // What rounding lse lost: far from zero exp(x - lse) alone would be far off.
    __device__ __forceinline__ A lse_low() const {
        const A high = lse();
        return is_finite(high) ? (sums.m - high) + log(sums.s) : A(0);
    }

    __device__ __forceinline__ A loss(A label_logit, A z_loss) const {
        if (!kept) return 0;
        const A whole = lse();
        if (!known || !is_finite(whole)) return not_a_number<A>();
        A loss = 0;
        if constexpr (kProbabilities) {
            loss = sums.gap + sums.mass * log(sums.s);
        } else {
            if (label_mass != A(0)) loss = label_mass * ((sums.m - label_logit) + log(sums.s));
            if (kSmoothing) loss += spread * (sums.gap + sums.mass * log(sums.s));
        }
        return loss + z_loss * whole * whole;
    }

    // What multiplies a class's probability in the gradient.
    __device__ __forceinline__ A pull(A on_class, A on_z) const {
        if (!kept) return 0;
        return known ? on_class * mass + (kZLoss ? on_z * lse() : A(0)) : not_a_number<A>();
    }
    // exp(x - m_warp) times this is the probability; NaN in a row with +inf, with NaN, or all -inf.
    __device__ __forceinline__ A probability_factor(A m_warp) const {
        return sums.m == infinity<A>() ? not_a_number<A>() : rescale_factor(m_warp, sums.m, ExpOf()) * reciprocal(sums.s);
    }
    __device__ __forceinline__ A probability(A x) const {
        return is_finite(sums.m) ? ExpOf()(x - sums.m) * reciprocal(sums.s) : not_a_number<A>();
    }
};

// Where a row's results go; the last three with aux.
template <class A>
struct RowResults {
    A z_loss, reported_z;
    A *losses, *lses, *lse_lows, *z_losses;
    int64* predictions;
    A* entropies;

    __device__ __forceinline__ void write(int64 row, const RowLoss<A>& of, A label_logit) const {
        const A lse = of.lse();
        losses[row] = of.loss(label_logit, reported_z);
        lses[row] = lse;
        lse_lows[row] = of.lse_low();
        if constexpr (kAux) {
            z_losses[row] = of.kept ? z_loss * lse * lse : A(0);
            predictions[row] = of.sums.predicted();
            entropies[row] = of.sums.entropy();
        }
    }
};

}  // namespace online_softmax
