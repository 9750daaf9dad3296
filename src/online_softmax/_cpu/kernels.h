// The kernels of one instruction set.  Their sources are compiled once for each, and the best one is picked at import.
#pragma once

#include <cstdint>

#include "types.h"

namespace online_softmax {

enum class Softmax : int { softmax, log_softmax, logsumexp };

// Class indices (index_size 4 or 8 bytes), or none: the probabilities are then an operand of the call.
struct Targets {
    const char* indices;
    int index_size;
    std::int64_t stride;  // in bytes
    std::int64_t ignore_index;

    std::int64_t at(std::int64_t row) const {
        const char* p = indices + row * stride;
        return index_size == 8 ? *reinterpret_cast<const std::int64_t*>(p) : *reinterpret_cast<const std::int32_t*>(p);
    }
};

// A vector of the compute dtype; strides count bytes, 0 for one number that serves every row.
struct Vector {
    char* data;
    std::int64_t stride;
};

struct CrossEntropyOptions {
    double label_smoothing, scale, softcap, z_loss;  // softcap 0: none
};

enum class Reduction : int { none, mean, sum };

// Operands: logits, then the gradient and the probabilities where there are any.  Line i is row i.
struct CrossEntropyCall {
    Lines lines;
    bool has_gradient, has_probabilities;
    Targets targets;
    const char* weight;  // one number a class, compute dtype, or null
    CrossEntropyOptions options;
    int threads;

    const Operand& logits() const { return lines.operand[0]; }
    const Operand& gradient() const { return lines.operand[1]; }
    // The logits stand in where there are none, and are not read as such.
    const Operand& probabilities() const { return lines.operand[has_probabilities ? 1 + has_gradient : 0]; }
};

// Outputs of the compute dtype, one number a row, unless said.
struct CrossEntropyForward {
    char* loss;  // one number for mean and sum
    char *lse, *lse_low;
    char *z_loss, *predicted, *entropy;  // or null; predicted: int64
    Reduction reduction;
    bool has_num_items;
    double num_items;
    double divisors[2];  // found here: of the class term, of the z term
};

struct CrossEntropyBackward {
    Vector lse, lse_low, grad_loss, grad_lse;  // grad_lse.data may be null
    double divisors[2];
};

struct Kernels {
    const char* name;
    // Operands: x, result.
    void (*softmax_forward)(const Lines&, Softmax, int threads);
    // Operands: grad, y, result.
    void (*softmax_backward)(const Lines&, Softmax, int threads);
    // Operands: x, grad, lse, result.
    void (*logsumexp_backward)(const Lines&, int threads);
    void (*cross_entropy_forward)(const CrossEntropyCall&, CrossEntropyForward&);
    void (*cross_entropy_backward)(const CrossEntropyCall&, const CrossEntropyBackward&);
    // Operand: what is multiplied.
    void (*rescale)(const Lines&, double factor, int threads);
};

extern const Kernels baseline_kernels, avx2_kernels, avx512_kernels;

}  // namespace online_softmax
