// The gradient of cross-entropy from a log-sum-exp that is given, whether the row's own or that of a longer row of which
// this one is a part:
//
//     dx_c = p_c (A sum of w q' + 2 z lse Z + grad_lse) - A w_c q'_c,      p = exp((x - lse) - lse_low)
//
// A part holds `classes` of `all_classes`, from `first_class` on; labels, weights and smoothing concern all of them.
// Nothing is summed over the logits, so a row is cut into pieces that blocks (or, short rows, lanes of a warp) take one
// by one.  Each thread reads what it writes and nothing else: the gradient may take the logits' memory.
#include "label.cuh"

using namespace online_softmax;

using Given = TARGET;
using Weight = WeightInMemory<Compute>;
using Mass = ClassMass<Compute, Weight, Given>;
using Word = Pack<Input, kElements>;
static_assert(kCluster == 1, "pieces are blocks");

constexpr int kMassThreads = 512, kMassBlock = 8;  // added up by themselves first: no long accumulation

// Per row, one block each: the sum of what ClassMass gives, for `masses` below.
extern "C" __global__ void __launch_bounds__(kMassThreads)
sum_masses(const Given* targets, int64 target_stride, const Compute* weight, int classes, double smoothing,
           Compute* masses) {
    const Weight weight_of{weight};
    const Mass mass_of{weight_of, targets + int64(blockIdx.x) * target_stride, Compute(1 - smoothing),
                       Compute(smoothing / classes)};
    Compute sum = 0;
    for (int64 from = threadIdx.x; from < classes; from += kMassBlock * kMassThreads) {
        Compute block = 0;
#pragma unroll
        for (int k = 0; k < kMassBlock; ++k) {
            const int64 column = from + k * kMassThreads;
            if (column < classes) block += mass_of(int(column));
        }
        sum += block;
    }
    __shared__ Compute of_warp[kMassThreads / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    sum = lane_sum<32>(sum);
    if (lane == 0) of_warp[warp] = sum;
    __syncthreads();
    if (warp != 0) return;
    sum = lane_sum<32>(lane < kMassThreads / 32 ? of_warp[lane] : Compute(0));
    if (lane == 0) masses[blockIdx.x] = sum;
}

// The same number, but what follows from it is worked out where it is used, not kept from the beginning.
__device__ __forceinline__ int here(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

constexpr bool kPieces = kGroup == kThreads;  // the words that a row shares with its neighbours fall to single threads (words.cuh)

// This thread's words, all of them asked for before the first is used; 0 where a position is not the row's.
__device__ __forceinline__ void read_words(Word (&found)[kSlots], const Input* from, const Part& part, int thread,
                                           uint64 policy) {
    if constexpr (kPieces) {
        uint4 words[kSlots];
        load_words<kSlots, kGroup * kElements>(words, from + thread * kElements, part, make_uint4(0, 0, 0, 0),
                                                policy);
#pragma unroll
        for (int i = 0; i < kSlots; ++i) found[i] = Word::of_word(words[i]);
        return;
    }
    const int first = here(thread);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
        const int word = i * kGroup + first;
        if (part.whole(word)) {
            found[i] = Word::of_word(load(from + word * kElements, policy));
            continue;
        }
        Compute values[kElements];
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
            values[k] = 0;
            if (part.holds(word * kElements + k)) values[k] = Compute(widen(from[word * kElements + k]));
        }
        found[i] = Word::of(values);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
cross_entropy_backward(const Input* logits, Input* gradient, int64 rows, int classes, int pieces, int64 logits_stride,
                       int64 gradient_stride, const Given* targets, int64 target_stride, const Compute* weight,
                       int64 ignore_index, double scale, double softcap, double smoothing, double z_loss,
                       const Compute* divisors, const Compute* lses, const Compute* lse_lows, const Compute* grad_loss,
                       int64 grad_loss_stride, const Compute* grad_lse, int64 grad_lse_stride, const Compute* masses,
                       int64 mass_stride, int64 first_class, int64 all_classes) {
    const int thread = threadIdx.x % kGroup;
    const uint32 block_row = blockIdx.x / uint32(pieces);  // in 64 bits a division takes longer than a word from memory
    const int64 row = int64(block_row) * kRowsPerBlock + threadIdx.x / kGroup;
    if (row >= rows) return;
    const int index = int(blockIdx.x - block_row * uint32(pieces));
    const Input* const start = logits + row * logits_stride;
    const int head = window_head(start);
    constexpr int64 room = int64(kGroup) * kSlots * kElements;
    const int64 offset = index == 0 ? 0 : index * room - head, left = classes - offset;
    Part part = part_of_row<Input>(index == 0 ? head : 0, int(left < room ? left : room), 0, kGroup * kSlots);
    part.column += int(offset);  // columns are the whole row's

    Word words[kSlots];
    read_words(words, start + part.column, part, thread, policy_of_rows());

    // The class of an index target, the mass on it, and the mass of all classes.
    const Given* const target = targets + row * target_stride;
    const Compute spread = kSpread ? Compute(smoothing / all_classes) : Compute(0), kept_mass = Compute(1 - smoothing);
    bool kept = true, known = true;
    int own_class = -1;  // of this part
    Compute label_weight = 1, mass = 1;  // (1 - eps) + C (eps / C), without its rounding
    if constexpr (kProbabilities) {
        mass = masses[row * mass_stride];
    } else {
        const int64 label = label_of(*target);
        kept = label != ignore_index, known = label >= 0 && label < all_classes;
        const int64 at = label - first_class;
        if (kept && known && at >= 0 && at < classes) own_class = int(at);
        if (kWeighted && kept && known) label_weight = weight[label];
        if constexpr (kWeighted) mass = label_weight * kept_mass + (kSmoothing ? spread * masses[0] : Compute(0));
    }
    // Its logit is read before anything is written, by the thread that writes its gradient.
    const int own_position = own_class - part.column;
    const bool in_word = part.holds(own_position) && own_position / kElements % kGroup == thread;
    const bool owner = own_class >= 0 && (kPieces ? is_mine(part, own_position) : in_word);
    const int edge_at = kPieces ? edge_position<Input>(part, thread) : -1;
    const Compute edge = edge_at >= 0 ? Compute(widen(start[edge_at + part.column])) : Compute(0);
    const Compute own_logit = owner ? Compute(widen(start[own_class])) : Compute(0);

    // A row without a finite lse (NaN, +inf, nothing but -inf) has no gradient to give: NaN.
    const Compute given = lses[row], lse_low = lse_lows[row];
    const Compute lse = is_finite(given) ? given : not_a_number<Compute>();
    const Compute incoming = kept ? grad_loss[row * grad_loss_stride] : Compute(0);
    const Compute on_class = kept ? incoming * over(divisors[0]) : Compute(0);
    Compute beside = 0;  // what multiplies a class's probability apart from the target's mass
    if (kZLoss && kept) beside = incoming * over(divisors[1]) * Compute(2 * z_loss) * lse;
    if (grad_lse) beside += grad_lse[row * grad_lse_stride];
    Compute pull = (kept ? on_class * mass : Compute(0)) + beside;  // all that multiplies it
    if (kept && !known) pull = not_a_number<Compute>();
    const bool silent = !kept && pull == Compute(0);  // an ignored row: 0, whatever it holds

    const Logit<Compute> logit{Compute(scale), Compute(softcap), Compute(1 / softcap)};
    const Compute chain = kScaled ? logit.scale : Compute(1);
    const Compute factor = pull * chain;
    const Compute push = on_class * chain * (kProbabilities ? Compute(1) : spread);
    const auto gradient_of = [&](Compute raw, Compute taken) {
        Compute slope = 1;
        const Compute x = logit(raw, slope);
        return silent ? Compute(0) : (ExpOf()((x - lse) - lse_low) * factor - taken) * slope;
    };
    const Weight weight_of{weight + first_class};
    const Mass mass_of{weight_of, target, kept_mass, spread};
    Input* const target_row = gradient + row * gradient_stride;
    Input* const to = target_row + part.column;
    Compute results[kElements];
    const auto compute = [&](int i, int word, bool whole) {
        words[i].unpack(results);
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
            const int position = word * kElements + k;
            Compute taken = 0;
            if constexpr (kSpread) {
                const bool there = whole || !(kProbabilities || kWeighted) || part.holds(position);
                if (there) taken = push * mass_of(position + part.column);
            }
            results[k] = gradient_of(results[k], taken);
        }
    };
    const bool aligned = aligned_with<Input, kElements>(target_row, part);
    const int first = kPieces ? thread : here(thread);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
        const int word = i * kGroup + first;
        const bool whole = part.whole(word);
        if (kPieces && !whole) continue;
        compute(i, word, kPieces);
        if (aligned && whole) {
            Word::of(results).store(to + word * kElements);
        } else {
#pragma unroll
            for (int k = 0; k < kElements; ++k) {
                const int position = word * kElements + k;
                if (whole || part.holds(position)) to[position] = Narrow<Input>::one(results[k]);
            }
        }
    }
    if (edge_at >= 0) {
        const Compute taken = kSpread ? push * mass_of(edge_at + part.column) : Compute(0);
        to[edge_at] = Narrow<Input>::one(gradient_of(edge, taken));
    }
    if (owner) {  // over what it just wrote
        Compute slope = 1;
        const Compute log_p = (logit(own_logit, slope) - lse) - lse_low, own_share = on_class * label_weight;
        // p - 1 keeps its digits where p is nearly 1.
        Compute sum = expm1(log_p) * (own_share * kept_mass) + exp(log_p) * beside;
        if constexpr (kSmoothing) {
            const Compute rest = kWeighted ? on_class * spread * masses[0] : on_class * Compute(smoothing);
            sum += exp(log_p) * rest - own_share * spread;
        }
        target_row[own_class] = Narrow<Input>::one(sum * slope * chain);
    }
}
