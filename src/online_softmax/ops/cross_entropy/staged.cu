// Cross-entropy of a row that stays with its block or cluster as the words it came in: the loss alone, or the loss and its
// gradient from one read of the logits.
//
// HELD of a thread's words come straight into registers, where they stay packed, the rest into shared memory by
// asynchronous copies, where they are summarised chunk by chunk as they land.  When the row's sums are known the words are
// exponentiated again.  Nothing is kept for each element, so several blocks share a multiprocessor and overlap their
// loads, reductions and stores.  Where an element costs many instructions (TOPFIRST), loops are short and nothing is
// summed before the thread's largest is known.  The label's own class is mended at the end, by the thread that wrote it.
#include "totals.cuh"
#include "words_of_row.cuh"

using namespace online_softmax;

using Found = Exchange<Compute, kFound>;
constexpr bool kTopFirst = TOPFIRST;
static_assert(!kTopFirst || kHeld == 0);

extern __shared__ uint4 words[];

__device__ __forceinline__ void wait_for_all_but(int later) {
    if (later >= 7) copy_async_wait<7>();
    else if (later >= 5) copy_async_wait<5>();
    else if (later == 4) copy_async_wait<4>();
    else if (later == 3) copy_async_wait<3>();
    else if (later == 2) copy_async_wait<2>();
    else if (later == 1) copy_async_wait<1>();
    else copy_async_wait<0>();
}

// The words kept in shared memory, by the number of a chunk.
struct Kept {
    __device__ __forceinline__ static int first(int chunk) { return kHeld * kThreads + chunk * kChunkWords; }
    __device__ __forceinline__ static uint4* by_word() { return words - kHeld * kThreads; }

    __device__ __forceinline__ static void fetch(const Input* row, const Part& part, uint4 missing) {
        constexpr int before = kHeld * kThreads * kElements;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            copy_whole_words<Input, kChunkSlots, kThreads>(reinterpret_cast<Input*>(words) - before, row, part,
                                                           first(chunk) + int(threadIdx.x), missing);
            copy_async_commit();
        }
    }
    __device__ __forceinline__ static void wait(int chunk) { wait_for_all_but(kChunks - 1 - chunk); }
    __device__ __forceinline__ static void read(uint4 (&some)[kChunkSlots], int chunk) {
#pragma unroll
        for (int i = 0; i < kChunkSlots; ++i) some[i] = words[chunk * kChunkWords + i * kThreads + threadIdx.x];
    }
};

// The same word, but the compiler does not know it: it unpacks it again instead of keeping it unpacked.
__device__ __forceinline__ uint4 once_more(uint4 word) {
    asm volatile("" : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w));
    return word;
}

constexpr int kIgnored = -1, kUnknown = -2;  // instead of a class

__device__ __forceinline__ int class_of(int64 label, int64 ignore_index, int classes) {
    if (label == ignore_index) return kIgnored;
    return label >= 0 && label < classes ? int(label) : kUnknown;
}

// Numbers come in pairs (capped.cuh); `masses`: what smoothing gives every class and what it leaves the label; `z`: the
// z-loss, and what of it the loss reports.  The last three are of kernels that give more.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
cross_entropy_staged(const Input* logits, Input* gradient, int64 rows, int classes, int64 logits_stride,
                     int64 gradient_stride, const TARGET* targets, int64 target_stride, const Compute* weight,
                     int64 ignore_index, float2 scale_softcap, float2 inverses, float2 terms_0, float2 terms_1, float2 near,
                     float2 masses, float2 z, const Compute* divisors, Compute* losses, Compute* lses, Compute* lse_lows,
                     Compute*, int64*, Compute*) {
    const int rank = kCluster > 1 ? cluster_rank() : 0;
    const int64 row = int64(blockIdx.x) / kCluster;
    const Input* const source = logits + row * logits_stride;
    const int label = class_of(label_of(targets[row * target_stride]), ignore_index, classes);
    const bool kept = label != kIgnored, known = label >= 0;
    const Capped logit{scale_softcap, inverses, terms_0, terms_1, near};
    const uint32 signs = kScaled && scale_softcap.x < 0 ? (sizeof(Input) == 2 ? 0x80008000u : 0x80000000u) : 0;
    uint4 missing = word_of_minus_infinity<Input>();
    if constexpr (kScaled) missing = make_uint4(missing.x ^ signs, missing.y ^ signs, missing.z ^ signs, missing.w ^ signs);

    Part part = share_of_row(source, classes, rank);
    uint4 held[kHeld + 1];
    Kept::fetch(source, part, missing);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int word = i * kThreads + int(threadIdx.x);
        held[i] = load_if(source + part.column + word * kElements, part.whole(word), missing);
    }
    const Compute edge_raw = edge_element(source, part, threadIdx.x, Compute(0));
    wait_for_previous_launch();
    const Compute class_divisor = kGradient ? divisors[0] : Compute(1);
    const Compute row_divisor = kGradient && kZLoss ? divisors[1] : Compute(1);
    __shared__ Found::Shared shared;
    Found exchange(shared);
    const Compute label_weight = kWeighted && known ? weight[label] : Compute(1);
    Compute label_raw = edge_raw;
    if (kHeld > 0 && known && is_mine(part, label - part.column)) label_raw = widen(source[label]);

    RowSums<Compute> sums;
    uint32 near_chunks = 0;  // one bit a chunk
    Compute reference_of_held = 0;
    {
        const WordWeights weights(weight, part);
        const WordsOfRow here{logit, weights, part, signs};
        const int edge_at = edge_position<Input>(part, threadIdx.x);
        Compute slope, edge = -infinity<Compute>();
        if (edge_at >= 0) edge = logit.value<false>(logit.scaled(edge_raw), slope);
        uint4 some[kChunkSlots];
        if constexpr (kTopFirst || kKept == 0) {
            Compute top = -infinity<Compute>();
            if constexpr (kHeld > 0) {
                bool held_near;
                const Compute of_held = here.top_of(reinterpret_cast<uint4(&)[kHeld + (kHeld == 0)]>(held), held_near);
                if (here.any<kHeld>(0)) top = of_held;
            }
#pragma unroll 1
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                Kept::wait(chunk);
                if (!here.reaches(Kept::first(chunk))) break;
                Kept::read(some, chunk);
                bool chunk_near;
                const Compute of_chunk = here.top_of(some, chunk_near);
                if (here.any<kChunkSlots>(Kept::first(chunk))) top = maximum(top, of_chunk);
                near_chunks |= uint32(chunk_near) << chunk;
            }
            copy_async_wait<0>();
            const bool whole_words = int(threadIdx.x) + (part.whole_from > int(threadIdx.x) ? kThreads : 0) < part.whole_to;
            if (kSeries && fabsf(top) <= near.y) top = logit.value<true>(top, slope);
            else if (whole_words) top = logit.value<false>(top, slope);
            sums.m = lane_maximum<32>(maximum(top, edge));
            if constexpr (kHeld > 0)
                here.add<false>(reinterpret_cast<uint4(&)[kHeld + (kHeld == 0)]>(held), 0, sums.reference(), sums, nullptr);
#pragma unroll 1
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                const int first = Kept::first(chunk);
                if (!here.reaches(first)) break;
                Kept::read(some, chunk);
                if (kSeries && (near_chunks >> chunk & 1)) here.add<true>(some, first, sums.reference(), sums, Kept::by_word());
                else here.add<false>(some, first, sums.reference(), sums, Kept::by_word());
            }
            if (edge_at >= 0) add_edge(edge, sums.reference(), weight + part.column + edge_at, sums);
            reference_of_held = sums.m;
            sums.over_lanes();
            sums.become_state();
        } else {
            if constexpr (kHeld > 0)
                here.summarise(reinterpret_cast<uint4(&)[kHeld + (kHeld == 0)]>(held), 0, sums, nullptr);
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                Kept::wait(chunk);
                if (!here.reaches(Kept::first(chunk))) continue;
                Kept::read(some, chunk);
                near_chunks |= uint32(here.summarise(some, Kept::first(chunk), sums, Kept::by_word())) << chunk;
            }
            if (edge_at >= 0) {
                RowSums<Compute> of_edge;
                of_edge.m = edge;
                add_edge(edge, of_edge.reference(), weight + part.column + edge_at, of_edge);
                of_edge.become_state();
                sums.absorb<ExpOf>(of_edge.record().at);
            }
            sums.rebase(lane_maximum<32>(sums.m));
            sums.over_lanes();
        }
    }
    const int label_at = label - part.column, label_word = label_at / kElements;
    const bool owner = known && is_mine(part, label_at), in_words = part.whole(label_word);
    if (kHeld == 0 && owner && in_words) label_raw = widen(reinterpret_cast<const Input*>(words)[label_at]);
    const bool label_capped = kStored && owner && in_words && (near_chunks >> (label_word / kChunkWords) & 1);
    sums.merge(exchange.swap(sums.record().at));

    const Compute spread = masses.x, kept_mass = masses.y;
    const RowLoss<Compute> result(sums, kept, known, label_weight, kept_mass, spread);
    Compute label_logit = 0, label_slope = 1;
    if (owner) {
        if (label_capped) label_logit = label_raw, label_slope = logit.slope_at(label_raw);
        else label_logit = logit.value<false>(logit.scaled(label_raw), label_slope);
    }
    bool last_row = false;
    if (known ? owner : rank == 0 && threadIdx.x == 0) {
        losses[row] = result.loss(label_logit, z.y);
        lses[row] = result.lse();
        lse_lows[row] = result.lse_low();
        last_row = was_last_row(divisors);
    }
    if constexpr (kGradient) {
        part = share_of_row(hidden(source), classes, rank);  // once more: while words were summed, registers were few
        const Compute on_class = kept ? over(class_divisor) : Compute(0);
        const Compute pull = result.pull(on_class, kZLoss ? over(row_divisor) * (2 * z.x) : Compute(0));
        const Compute chain = kScaled ? scale_softcap.x : Compute(1);
        const Compute factor = result.probability_factor(sums.m) * pull * chain, push = on_class * chain * spread;
        Input* const target_row = gradient + row * gradient_stride;
        const Target<Input, kElements, kThreads> target(target_row, part, threadIdx.x);
        const WordWeights weights(weight, part);
        const WordsOfRow here{logit, weights, part, signs};
        const Compute reference = sums.reference();
        if constexpr (kHeld > 0) {
            const Compute factor_of_held =
                kExponentials ? result.probability_factor(reference_of_held) * pull * chain : factor;
#pragma unroll
            for (int i = 0; i < kHeld; ++i) {
                uint4 one[1] = {held[i]};
                if constexpr (!kExponentials) one[0] = once_more(held[i]);
                if (!kept) here.write_zeros<1>(i * kThreads, target);  // whatever the row holds
                else here.write<false>(one, i * kThreads, reference, factor_of_held, push, target);
            }
        }
        uint4 some[kChunkSlots];
#pragma unroll UNROLL
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int first = Kept::first(chunk);
            if (!here.reaches(first)) continue;
            Kept::read(some, chunk);
            if (!kept) here.write_zeros<kChunkSlots>(first, target);
            else if (kSeries && (near_chunks >> chunk & 1)) here.write<true>(some, first, reference, factor, push, target);
            else here.write<false>(some, first, reference, factor, push, target);
        }
        if (const int edge_at = edge_position<Input>(part, threadIdx.x); edge_at >= 0) {
            Compute slope = 1;
            Compute g = ExpOf()(logit.value<false>(logit.scaled(edge_raw), slope) - reference) * factor;
            if constexpr (kSpread) g -= kMasses ? push * weight[part.column + edge_at] : push;
            target_row[part.column + edge_at] = Narrow<Input>::one(!kept ? Compute(0) : kSoftcap ? g * slope : g);
        }
        if (owner) {  // over what was just written: p - 1 rounded once
            const Compute p = result.probability(label_logit), mass = label_weight * (kept_mass + spread);
            target_row[label] = Narrow<Input>::one((p * pull - on_class * mass) * chain * label_slope);
        }
    }
    sum_losses_after<TARGET, kThreads>(last_row, divisors);
}
