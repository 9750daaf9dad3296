// Cross-entropy of capped logits, whose every element costs many instructions: the loss, or the loss and its gradient,
// from one read of the logits.
//
// A thread's words come straight into registers, HELD of them, the rest into shared memory by asynchronous copies.  When
// the warp's largest logit is known they are capped and summed, and each capped logit goes to a room in shared memory, 32
// bits wide, from where the gradient is made in one short loop.  What class weights weigh is summed in that loop as well,
// so that weights are read once; it arrives at the cluster's first block, which alone waits for it.  Where logits are too
// large for the polynomial of capped.cuh rooms keep the words as they came, and tangents are made twice.
#include "../../_cuda/summary.cuh"
#include "../../_cuda/words.cuh"
#include "label.cuh"
#include "rooms.cuh"
#include "row_loss.cuh"
#include "to_gradient.cuh"

using namespace online_softmax;

using Found = Exchange<Compute, 2>;

// What a block's first warp makes of the row's sums and tells the others.
struct alignas(16) Told {
    Compute reference, per_unit, unit, pushed;  // as ToGradient takes them; whether classes are pushed
    Compute inverse, pull, on_class, factor;    // 1 / s; what multiplies a probability; a class's mass; a power of two
};
struct InBlock {
    struct Shared {
        Found::Shared exchange;
        Told told;
    };
};
constexpr int kHeld = HELD, kKept = kSlots - kHeld;
static_assert(kHeld % kChunk == 0 && kKept % kChunk == 0 && kChunks <= 32 && kGroup == kThreads && !kWithinWarp);
static_assert(!kProbabilities && !kAux && kSoftcap);

// Numbers come in pairs (capped.cuh); `masses`: what smoothing gives every class and what it leaves the label; `z`: the
// z-loss, and what of it the loss reports; `weight_sums`: eight numbers that add up to all class weights.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
cross_entropy_softcap(const Input* logits, Input* gradient, int64 rows, int classes, int64 logits_stride,
                      int64 gradient_stride, const TARGET* targets, int64 target_stride, const Compute* weight,
                      int64 ignore_index, float2 scale_amplitude, float2 inverses, float2 terms_0, float2 terms_1,
                      float2 near_lead, float2 masses, float2 z, const Compute* divisors, Compute* losses, Compute* lses,
                      Compute* lse_lows, const Compute* weight_sums, int64 weight_shift, Compute*) {
    let_next_launch_begin();  // the sum of losses, which waits for this one to end
    const int rank = kCluster > 1 ? cluster_rank() : 0;
    const int64 row = int64(blockIdx.x) / kCluster;
    const Input* const source = logits + row * logits_stride;
    const Capped logit{scale_amplitude, inverses, terms_0, terms_1, near_lead};
    const bool turned = kScaled && scale_amplitude.x < 0;
    const uint32 signs = turned ? (sizeof(Input) == 2 ? 0x80008000u : 0x80000000u) : 0;
    uint4 missing = word_of_minus_infinity<Input>();
    if constexpr (kScaled) missing = make_uint4(missing.x ^ signs, missing.y ^ signs, missing.z ^ signs, missing.w ^ signs);

    Part part = share_of_row(source, classes, rank);
    const Input* const mine = source + part.column + int(threadIdx.x) * kElements;  // this thread's first word
    constexpr int step = kThreads * kElements;
#pragma unroll
    for (int slot = kHeld; slot < kSlots; ++slot) {
        if (part.whole(word_at(slot))) copy_async(&Rooms::raw(slot), mine + slot * step);
        else Rooms::raw(slot) = missing;
    }
    copy_async_commit();
    uint4 held[kHeld + (kHeld == 0)];
    load_words<kHeld, step>(held, mine, part, missing, policy_of_rows(kGradient));
    const Compute edge_raw = edge_element(source, part, threadIdx.x, Compute(0));
    wait_for_previous_launch();
    // Not asked for before: whoever waits for its label first has asked for nothing else meanwhile.
    const int label = class_of(label_of(targets[row * target_stride]), ignore_index, classes);
    const bool kept = label != kIgnored, known = label >= 0;
    __shared__ InBlock::Shared shared;
    Found exchange(shared.exchange);
    const auto reaches = [&](int slot) { return slot * kThreads + int(threadIdx.x & ~31u) < part.whole_to; };

    // The largest, and which chunks the polynomial serves: a bit each, the same in all lanes.
    Extent extent;
    uint32 near = 0;
#pragma unroll
    for (int chunk = 0; chunk < kHeld / kChunk; ++chunk) {
        const uint4* const some = held + chunk * kChunk;
        near |= uint32(extent.widen_by<kChunk>(some, logit)) << chunk;
    }
    copy_async_wait<0>();
#pragma unroll 1
    for (int chunk = kHeld / kChunk; chunk < kChunks; ++chunk) {
        uint4 some[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) some[i] = Rooms::raw(chunk * kChunk + i);
        near |= uint32(extent.widen_by<kChunk>(some, logit)) << chunk;
    }

    RowSums<Compute> sums;
    const int edge_at = edge_position<Input>(part, threadIdx.x);
    const Compute edge = edge_at >= 0 ? logit.alone(edge_raw).value : -infinity<Compute>();
    sums.m = lane_maximum<32>(maximum(logit.alone(turned ? extent.least : extent.largest).value, edge));
    {
        const Compute reference = sums.reference();
#pragma unroll
        for (int chunk = 0; chunk < kHeld / kChunk; ++chunk) {
            const bool is_near = near >> chunk & 1;
#pragma unroll
            for (int i = chunk * kChunk; i < (chunk + 1) * kChunk; ++i) {
                if (!is_near) {
                    Rooms::raw(i) = held[i];
                    continue;
                }
                Compute x[kElements];
                const Compute s = sum_of_word<true>(held[i], logit, reference, x);
                Rooms::put(i, held[i], x);
                sums.s += part.whole(word_at(i)) ? s : Compute(0);
            }
        }
        constexpr uint32 of_held = uint32((uint64(1) << kHeld / kChunk) - 1);
#pragma unroll 1
        for (int chunk = (near & of_held) == of_held ? kHeld / kChunk : 0; chunk < kChunks; ++chunk) {
            const bool is_near = near >> chunk & 1;
            if (chunk < kHeld / kChunk && is_near) continue;
            if (!reaches(chunk * kChunk)) break;
            Compute x[kElements];
            if (kHeld < kSlots && is_near) {
#pragma unroll
                for (int i = chunk * kChunk; i < (chunk + 1) * kChunk; ++i) {
                    const uint4 word = Rooms::raw(i);
                    const Compute s = sum_of_word<true>(word, logit, reference, x);
                    if constexpr (Rooms::kCapped) Rooms::put(i, word, x);
                    sums.s += part.whole(word_at(i)) ? s : Compute(0);
                }
            } else {
#pragma unroll 1
                for (int i = chunk * kChunk; i < (chunk + 1) * kChunk; ++i) {
                    const Compute s = sum_of_word<false>(Rooms::raw(i), logit, reference, x);
                    sums.s += part.whole(word_at(i)) ? s : Compute(0);
                }
            }
        }
        if (edge_at >= 0) sums.s += exponential_of_units(edge - reference);
        sums.s = lane_sum<32>(sums.s);
        sums.become_state();
    }

    // Asked for now, needed when the row's sums are known; nothing of the row has been overwritten yet.
    const int label_at = label - part.column;
    const bool owner = known && is_mine(part, label_at);
    const Compute label_raw = owner ? Compute(widen(source[label])) : Compute(0);
    const Compute label_weight = kWeighted && known ? weight[label] : Compute(1);
    const WordWeights weights(weight, weight_shift, part);
    NextWeights next;
    if constexpr (kMasses) next.load(weights.from + int(threadIdx.x) * kElements, part);
    const bool tells = threadIdx.x < 32;
    Compute class_divisor = 1, row_divisor = 1;
    if (tells) {
        if constexpr (kGradient) class_divisor = divisors[0];
        if constexpr (kGradient && kZLoss) row_divisor = divisors[1];
        sums.mass = kMasses ? sum_of_eight(weight_sums) : Compute(classes);
    }
    const Compute spread = masses.x, kept_mass = masses.y, chain = kScaled ? scale_amplitude.x : Compute(1);
    const Compute of_warp[2] = {sums.m, sums.s};
    const RowLoss<Compute> result(sums, kept, known, label_weight, kept_mass, spread);
    exchange.post(of_warp);
    if (const Compute* const records = exchange.collect()) {
        const State<Compute> state = merge_records<Compute, 2>(records, ExpOfUnits());
        sums.m = state.m * kPerUnit, sums.s = state.s;
        const Compute on_class = kept ? over(class_divisor) : Compute(0), on_row = kZLoss ? over(row_divisor) : Compute(0);
        Told told;
        told.reference = state.m == -infinity<Compute>() ? Compute(0) : state.m;
        told.inverse = result.probability_factor(sums.m), told.on_class = on_class;
        told.pull = result.pull(on_class, on_row * (2 * z.x)), told.factor = told.inverse * told.pull * chain;
        // Push is the same for all classes, and is taken into the slope, unless it is next to nothing: then so is what it
        // pushes.
        const Compute push = on_class * chain * spread;
        const bool pushed = kSpread && fabsf(push) > maximum(fabsf(told.factor), 1e-6f) * 1e-30f;
        told.pushed = pushed, told.unit = pushed ? push : Compute(1);
        told.per_unit = pushed ? told.factor * reciprocal(push) : told.factor;
        if (threadIdx.x == 0) shared.told = told;
    }
    __syncthreads();
    const Told& told = shared.told;  // read again where it is needed, not kept
    CappedLogit of_label{told.reference, 1};
    if (owner) of_label = logit.alone(label_raw);
    Compute gap = 0;
    if constexpr (kGradient || kSpread) {
        part = share_of_row(hidden(source), classes, rank);  // once more: while words were summed, registers were few
        Input* const target_row = gradient + row * gradient_stride;
        ToGradient to(logit, target_row, part, weights.from);
        to.reference = told.reference, to.factor = told.per_unit, to.unit = told.unit;
        if (!kept) to.write_zeros();  // whatever the row holds
        else if (kSpread && told.pushed != Compute(0)) gap = to.write<true>(near, next);
        else to.write<false>(near, next);
        if (edge_at >= 0) {
            const CappedLogit of_edge = logit.alone(edge_raw);
            const Compute d = of_edge.value - told.reference;
            const Compute mass = kMasses ? weight[part.column + edge_at] : Compute(1);
            if constexpr (kSpread) gap -= mass * d;
            Compute g = exponential_of_units(d) * told.factor;
            if constexpr (kSpread) g -= told.on_class * chain * spread * mass;
            if constexpr (kGradient) target_row[part.column + edge_at] = Narrow<Input>::one(kept ? g * of_edge.slope : Compute(0));
        }
        if (kGradient && owner) {  // over what was just written: p - 1 rounded once
            const Compute p = exponential_of_units(of_label.value - told.reference) * told.inverse;
            const Compute mass = label_weight * (kept_mass + spread);
            target_row[label] = Narrow<Input>::one((p * told.pull - told.on_class * mass) * chain * of_label.slope);
        }
    }
    // The first block reports what all have found.
    const Compute mail[2] = {lane_sum<32>(gap), lane_sum<32>(of_label.value - told.reference)};
    const Compute* const records = exchange.gather(mail);
    if (records == nullptr) return;
    Compute label_below = 0;
    sums.gap = 0;
    for_my_records<Compute, 2>(records, [&](const Compute* record) { sums.gap += record[0], label_below += record[1]; });
    sums.gap = lane_sum<32>(sums.gap) * kPerUnit, label_below = lane_sum<32>(label_below) * kPerUnit;
    if (threadIdx.x != 0) return;
    const RowLoss<Compute> whole(sums, kept, known, label_weight, kept_mass, spread);
    losses[row] = whole.loss(sums.m + label_below, z.y);
    lses[row] = whole.lse();
    lse_lows[row] = whole.lse_low();
}
