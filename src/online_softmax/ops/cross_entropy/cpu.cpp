// Cross-entropy: the loss of each row, and its gradient in the same visit while the row is in the second cache.
//
// A class index without label smoothing has all its mass on one class: one sweep for the loss, one for the gradient.
// Of rows that are short, or lie side by side, many are then taken at once (cpu_tile.h).
// Smoothing, probabilities and entropy add a sweep for their sums.
#include "../../_cpu/kernels.h"
#include "../../_cpu/pieces.h"
#include "cpu_gradient.h"
#include "cpu_row.h"
#include "cpu_tile.h"

namespace online_softmax {
namespace {

constexpr double not_a_number = __builtin_nan("");

template <class T>
Finished<T> summarise_logits(const CrossEntropyCall& call, std::int64_t row, int threads) {
    const auto piece = [&](std::int64_t begin, std::int64_t end) {
        Logits<T> logits(call, row);
        return summarise_piece<T>(logits, begin, end);
    };
    const Summary<T> summary = fold_pieces(call.lines.length, threads, empty_summary<T>(), piece, combine<T>);
    Logits<T> logits(call, row);
    return finish_row(summary, logits, call.lines.length);
}

template <class T>
std::int64_t first_maximum(const CrossEntropyCall& call, std::int64_t row, const Finished<T>& state) {
    const std::int64_t length = call.lines.length;
    if (length == 0) return 0;
    std::int64_t found = -1;
    Logits<T> logits(call, row);
    const bool has_nan = !(state.sum == state.sum);
    for_each_block(has_nan ? 0 : state.where, length, [&](std::int64_t i, std::int64_t count) {
        if (found >= 0) return;
        const T* x = logits.block(i, count);
        const std::int64_t first = has_nan ? first_nan(x, count) : first_equal(x, count, state.m);
        if (first < count) found = i + first;
    });
    return found;
}

// What "mean" divides by: the weight of the kept rows and their number.
template <class T>
void count_kept(const CrossEntropyCall& call, double* divisors) {
    const T* weight = reinterpret_cast<const T*>(call.weight);
    divisors[0] = divisors[1] = 0.0;
    if (call.lines.length == 0) return;  // without classes there is nothing to keep
    for (std::int64_t row = 0; row < call.lines.count; ++row) {
        const ClassTarget target = ClassTarget::of(call, row, weight);
        if (target.ignored) continue;
        divisors[0] += target.weight;
        divisors[1] += 1.0;
    }
}

struct RowLoss {
    double class_term = 0.0, z_term = 0.0;
};

// The loss of a row whose logits are summarised, and what else is asked for; its gradient's numbers go to `gradient`.
template <class T, class Logit>
RowLoss finish_row_of(const CrossEntropyCall& call, const CrossEntropyForward& out, std::int64_t row, const Logit& logit,
                      const Finished<T>& state, int threads, RowGradient<T>* gradient) {
    const ClassTarget target = ClassTarget::of(call, row, reinterpret_cast<const T*>(call.weight));
    const double log = state.log();
    const T lse = state.logsumexp(log);
    const T low = state.logsumexp_low(lse, log);
    reinterpret_cast<T*>(out.lse)[row] = lse;
    reinterpret_cast<T*>(out.lse_low)[row] = low;

    Terms terms{target.weight, 0.0, 0.0};
    const bool spread = spread_out(call) && !target.ignored;
    if (spread || out.entropy) terms = sum_terms<T>(call, row, state.m, out.entropy != nullptr, threads);
    if (!spread) terms.mass = target.weight;
    if (out.entropy) reinterpret_cast<T*>(out.entropy)[row] = static_cast<T>(log + terms.spread / state.sum);
    if (out.predicted) reinterpret_cast<std::int64_t*>(out.predicted)[row] = first_maximum(call, row, state);

    RowLoss loss;
    if (!target.ignored) {
        if (spread) {
            loss.class_term = call.lines.length == 0 ? 0.0 : terms.distance + terms.mass * log;
        } else if (target.valid) {
            const double x = logit(target.index);
            // A class without weight adds nothing, even at -inf; a row without probabilities has no loss.
            const bool nothing = target.weight == 0.0 && log == log;
            loss.class_term = nothing ? 0.0 : target.weight * ((state.m - x) + log);
        } else {
            loss.class_term = not_a_number;
        }
        loss.z_term = call.options.z_loss == 0.0 ? 0.0 : call.options.z_loss * lse * lse;
    }
    if (out.z_loss) reinterpret_cast<T*>(out.z_loss)[row] = static_cast<T>(loss.z_term);

    if (call.has_gradient) *gradient = gradient_of_row(call, row, logit, lse, low, terms.mass, {1.0, 0.0}, out.divisors);
    return loss;
}

template <class T>
void forward_rows(const CrossEntropyCall& call, const CrossEntropyForward& out, RowLoss* losses) {
    for_each_line(call.lines.count, call.lines.length, call.threads, [&](std::int64_t row, int share) {
        RowGradient<T> gradient;
        const LogitOfRow<T> logit{call, row};
        losses[row] = finish_row_of(call, out, row, logit, summarise_logits<T>(call, row, share), share, &gradient);
        if (call.has_gradient) write_gradient(call, row, gradient, share);
    });
}

template <class T>
void forward_tiles(const CrossEntropyCall& call, const CrossEntropyForward& out, RowLoss* losses) {
    const Tiles<T> tiles(call.lines);
    for_each_tile(tiles, call.threads, [&](std::int64_t index, int) {
        const Tile<T> logits(tiles, 0, index);
        const std::int64_t row = tiles.first_line(index);
        const OneBlockTile<T> block(logits, call.lines.length);
        RowGradient<T> gradients[tile_width<T>];
        block.finish([&](int c, const Finished<T>& state) {
            const auto logit = [&](std::int64_t i) { return block.row(i)[c]; };
            losses[row + c] = finish_row_of(call, out, row + c, logit, state, 1, &gradients[c]);
        });
        if (!call.has_gradient) return;
        write_gradients(Tile<T>(tiles, 1, index), call.lines.length, gradients, [&](std::int64_t i) { return block.row(i); });
    });
}

template <class T>
void forward(const CrossEntropyCall& call, CrossEntropyForward& out) {
    const std::int64_t rows = call.lines.count;
    out.divisors[0] = out.divisors[1] = out.num_items;
    if (out.reduction != Reduction::mean) {
        out.divisors[0] = out.divisors[1] = 1.0;
    } else if (!out.has_num_items) {
        count_kept<T>(call, out.divisors);
    }
    for (double& divisor : out.divisors) {
        divisor = static_cast<T>(divisor);  // as backward will be given them
        // Loss and gradient of rows that are kept, but weigh nothing together, are NaN; ignored rows never ask.
        if (divisor == 0.0) divisor = not_a_number;
    }
    Scratch<RowLoss> losses(rows);
    const bool tiles = taken_in_tiles(call) && !out.entropy;
    (tiles ? forward_tiles<T> : forward_rows<T>)(call, out, rows > 0 ? &losses[0] : nullptr);
    T* loss = reinterpret_cast<T*>(out.loss);
    if (out.reduction == Reduction::none) {
        for (std::int64_t row = 0; row < rows; ++row) loss[row] = static_cast<T>(losses[row].class_term + losses[row].z_term);
        return;
    }
    RowLoss sum;
    for_each_block(0, rows, [&](std::int64_t i, std::int64_t count) {
        const RowLoss* block = &losses[i];
        sum.class_term += sum_block<double>(count, [=](std::int64_t j) { return block[j].class_term; });
        sum.z_term += sum_block<double>(count, [=](std::int64_t j) { return block[j].z_term; });
    });
    const double z = call.options.z_loss == 0.0 ? 0.0 : sum.z_term / out.divisors[1];
    loss[0] = static_cast<T>(sum.class_term / out.divisors[0] + z);
}

template <class T>
double element(const Vector& vector, std::int64_t row) {
    return vector.data ? *reinterpret_cast<const T*>(vector.data + row * vector.stride) : 0.0;
}

template <class T>
RowGradient<T> backward_row(const CrossEntropyCall& call, const CrossEntropyBackward& in, std::int64_t row, int threads) {
    const ClassTarget target = ClassTarget::of(call, row, reinterpret_cast<const T*>(call.weight));
    const bool spread = spread_out(call) && !target.ignored;
    const double mass = spread ? sum_mass<T>(call, row, threads) : target.weight;
    const T lse = static_cast<T>(element<T>(in.lse, row)), low = static_cast<T>(element<T>(in.lse_low, row));
    const Incoming grad{element<T>(in.grad_loss, row), element<T>(in.grad_lse, row)};
    return gradient_of_row(call, row, LogitOfRow<T>{call, row}, lse, low, mass, grad, in.divisors);
}

template <class T>
void backward(const CrossEntropyCall& call, const CrossEntropyBackward& in) {
    if (!taken_in_tiles(call)) {
        return for_each_line(call.lines.count, call.lines.length, call.threads, [&](std::int64_t row, int share) {
            write_gradient(call, row, backward_row<T>(call, in, row, share), share);
        });
    }
    const Tiles<T> tiles(call.lines);
    for_each_tile(tiles, call.threads, [&](std::int64_t index, int) {
        const Tile<T> logits(tiles, 0, index);
        RowGradient<T> gradients[tile_width<T>];
        for (int c = 0; c < logits.width; ++c) gradients[c] = backward_row<T>(call, in, tiles.first_line(index) + c, 1);
        Row<T> x{};
        write_gradients(Tile<T>(tiles, 1, index), call.lines.length, gradients, [&](std::int64_t i) {
            logits.load_row(i, x.at);
            return x.at;
        });
    });
}

template <class T>
void rescale_rows(const Lines& lines, T factor, int threads) {
    for_each_line(lines.count, lines.length, threads, [&](std::int64_t index, int share) {
        const Operand& array = lines.operand[0];
        char* row = lines.line(array, index);
        for_each_piece(lines.length, share, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
            Reader<T> in(array, row);
            Writer<T> out(array, row);
            for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
                const T* x = in.block(i, count);
                T* y = out.block(i);
#pragma omp simd
                for (std::int64_t j = 0; j < count; ++j) y[j] = x[j] * factor;  // hot: rescale
                out.finish_block(i, count);
            });
        });
    });
}

}  // namespace

namespace ONLINE_SOFTMAX_ISA {

void cross_entropy_forward(const CrossEntropyCall& call, CrossEntropyForward& out) {
    (call.logits().dtype == DType::float64 ? forward<double> : forward<float>)(call, out);
}

void cross_entropy_backward(const CrossEntropyCall& call, const CrossEntropyBackward& in) {
    (call.logits().dtype == DType::float64 ? backward<double> : backward<float>)(call, in);
}

void rescale(const Lines& lines, double factor, int threads) {
    if (lines.operand[0].dtype == DType::float64) return rescale_rows<double>(lines, factor, threads);
    rescale_rows<float>(lines, static_cast<float>(factor), threads);
}

}  // namespace ONLINE_SOFTMAX_ISA
}  // namespace online_softmax
