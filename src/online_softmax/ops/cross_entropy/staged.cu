// Cross-entropy of a row that stays with its block or cluster as the words it came in: the loss alone, or the loss and its
// gradient from one read of the logits.
//
// HELD of a thread's words come straight into registers, where they stay packed, the rest into shared memory by
// asynchronous copies, where they are summarised chunk by chunk as they land.  When the row's sums are known the words are
// exponentiated again.  Nothing is kept for each element, so several blocks share a multiprocessor and overlap their
// loads, reductions and stores.  The label's own class is mended at the end, by the thread that wrote it.
#include "label.cuh"
#include "words_of_row.cuh"

using namespace online_softmax;

using Found = Exchange<Compute, kFound>;

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

    // `mine` is this thread's first word in the row.
    __device__ __forceinline__ static void fetch(const Input* mine, const Part& part, uint4 missing) {
#pragma unroll
        for (int slot = 0; slot < kKept; ++slot) {
            uint4* const to = words + slot * kThreads + int(threadIdx.x);
            if (part.whole((kHeld + slot) * kThreads + int(threadIdx.x))) copy_async(to, mine + (kHeld + slot) * kThreads * kElements);
            else *to = missing;
            if (slot % kChunkSlots == kChunkSlots - 1) copy_async_commit();
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

// Numbers come in pairs; `masses`: what smoothing gives every class and what it leaves the label; `z`: the z-loss, and what
// of it the loss reports; `weight_sums`: eight numbers that add up to all class weights (totals.cu).
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
cross_entropy_staged(const Input* logits, Input* gradient, int64 rows, int classes, int64 logits_stride,
                     int64 gradient_stride, const TARGET* targets, int64 target_stride, const Compute* weight,
                     int64 ignore_index, float2 scale, float2 masses, float2 z, const Compute* divisors, Compute* losses,
                     Compute* lses, Compute* lse_lows, const Compute* weight_sums, int64 weight_shift, Compute*) {
    let_next_launch_begin();  // the sum of losses, which waits for this one to end
    const int rank = kCluster > 1 ? cluster_rank() : 0;
    const int64 row = int64(blockIdx.x) / kCluster;
    const Input* const source = logits + row * logits_stride;
    const uint32 signs = kScaled && scale.x < 0 ? (sizeof(Input) == 2 ? 0x80008000u : 0x80000000u) : 0;
    uint4 missing = word_of_minus_infinity<Input>();
    if constexpr (kScaled) missing = make_uint4(missing.x ^ signs, missing.y ^ signs, missing.z ^ signs, missing.w ^ signs);

    Part part = share_of_row(source, classes, rank);
    uint4 held[kHeld + 1];
    const Input* const mine = source + part.column + int(threadIdx.x) * kElements;  // this thread's first word
    Kept::fetch(mine, part, missing);
    load_words<kHeld, kThreads * kElements>(held, mine, part, missing, policy_of_rows(kGradient));
    const Compute edge_raw = edge_element(source, part, threadIdx.x, Compute(0));
    wait_for_previous_launch();
    // Not asked for before: whoever waits for its label first has asked for nothing else meanwhile.
    const int label = class_of(label_of(targets[row * target_stride]), ignore_index, classes);
    const bool kept = label != kIgnored, known = label >= 0;
    __shared__ Found::Shared shared;
    Found exchange(shared);
    RowSums<Compute> sums;
    Compute reference_of_held = 0;
    {
        const WordWeights weights(weight, weight_shift, part);
        const WordsOfRow here{scale.x, weights, part, signs};
        const int edge_at = edge_position<Input>(part, threadIdx.x);
        const Compute edge = edge_at >= 0 ? here.scaled(edge_raw) : -infinity<Compute>();
        if constexpr (kKept == 0) {
            auto& all = reinterpret_cast<uint4(&)[kHeld + (kHeld == 0)]>(held);
            const Compute top = here.top_of(all);
            sums.m = lane_maximum<32>(maximum(here.any<kHeld>(0) ? top : -infinity<Compute>(), edge));
            here.add(all, 0, sums.reference(), sums);
            if (edge_at >= 0) add_edge(edge, sums.reference(), weight + part.column + edge_at, sums);
            reference_of_held = sums.m;
            sums.over_lanes();
            sums.become_state();
        } else {
            if constexpr (kHeld > 0) here.summarise(reinterpret_cast<uint4(&)[kHeld + (kHeld == 0)]>(held), 0, sums);
            uint4 some[kChunkSlots];
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                Kept::wait(chunk);
                if (!here.reaches(Kept::first(chunk))) continue;
                Kept::read(some, chunk);
                here.summarise(some, Kept::first(chunk), sums);
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
    const int label_at = label - part.column;
    const bool owner = known && is_mine(part, label_at);
    // Asked for now, needed when the row's sums are known; nothing of the row has been overwritten yet.
    Compute label_raw = edge_raw;
    if (owner && part.whole(label_at / kElements))
        label_raw = widen((kHeld ? source + part.column : reinterpret_cast<const Input*>(words))[label_at]);
    const Compute label_weight = kWeighted && known ? weight[label] : Compute(1);
    const Compute class_divisor = kGradient ? divisors[0] : Compute(1);
    const Compute row_divisor = kGradient && kZLoss ? divisors[1] : Compute(1);
    sums.merge(exchange.swap(sums.record().at));
    if constexpr (kWeighedLate) sums.mass = sum_of_eight(weight_sums);

    const Compute spread = masses.x, kept_mass = masses.y;
    const RowLoss<Compute> result(sums, kept, known, label_weight, kept_mass, spread);
    Compute label_logit = owner ? (kScaled ? product(label_raw, scale.x) : label_raw) : Compute(0);
    if constexpr (kGradient) {
        part = share_of_row(hidden(source), classes, rank);  // once more: while words were summed, registers were few
        const Compute on_class = kept ? over(class_divisor) : Compute(0);
        const Compute pull = result.pull(on_class, kZLoss ? over(row_divisor) * (2 * z.x) : Compute(0));
        const Compute chain = kScaled ? scale.x : Compute(1);
        const Compute factor = result.probability_factor(sums.m) * pull * chain, push = on_class * chain * spread;
        Input* const target_row = gradient + row * gradient_stride;
        const Target<Input, kElements, kThreads> target(target_row, part, threadIdx.x);
        const WordWeights weights(weight, weight_shift, part);
        const WordsOfRow here{scale.x, weights, part, signs};
        const Compute reference = sums.reference();
        Compute gap = 0;
        if constexpr (kHeld > 0) {
            const Compute factor_of_held =
                kExponentials ? result.probability_factor(reference_of_held) * pull * chain : factor;
#pragma unroll
            for (int i = 0; i < kHeld; ++i) {
                uint4 one[1] = {held[i]};
                if constexpr (!kExponentials) one[0] = once_more(held[i]);
                if (!kept) here.write_zeros<1>(i * kThreads, target);  // whatever the row holds
                else here.write(one, i * kThreads, reference, factor_of_held, push, target, gap);
            }
        }
        uint4 some[kChunkSlots];
#pragma unroll 2
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int first = Kept::first(chunk);
            if (!here.reaches(first)) continue;
            Kept::read(some, chunk);
            if (!kept) here.write_zeros<kChunkSlots>(first, target);
            else here.write(some, first, reference, factor, push, target, gap);
        }
        if (const int edge_at = edge_position<Input>(part, threadIdx.x); edge_at >= 0) {
            const Compute d = here.scaled(edge_raw) - reference;
            const Compute mass = kMasses ? weight[part.column + edge_at] : Compute(1);
            Compute g = ExpOf()(d) * factor;
            if constexpr (kSpread) g -= push * mass;
            if constexpr (kMasses) gap -= weighed(mass, d);
            target_row[part.column + edge_at] = Narrow<Input>::one(kept ? g : Compute(0));
        }
        if (owner) {  // over what was just written: p - 1 rounded once
            const Compute p = result.probability(label_logit), mass = label_weight * (kept_mass + spread);
            target_row[label] = Narrow<Input>::one((p * pull - on_class * mass) * chain);
        }
        if constexpr (kWeighedLate) {  // the first block reports what all have found
            RowSums<Compute> of_warp;
            of_warp.m = lane_sum<32>(gap), of_warp.s = lane_sum<32>(label_logit);
            const Compute* const records = exchange.gather(of_warp.record().at);
            if (records == nullptr) return;
            sums.gap = label_logit = 0;
            for_my_records<Compute, kFound>(records, [&](const Compute* record) { sums.gap += record[0], label_logit += record[1]; });
            sums.gap = lane_sum<32>(sums.gap), label_logit = lane_sum<32>(label_logit);
        }
    }
    if (!kWeighedLate && known ? owner : rank == 0 && threadIdx.x == 0) {
        losses[row] = result.loss(label_logit, z.y);
        lses[row] = result.lse();
        lse_lows[row] = result.lse_low();
    }
}
