// What cpu.cpp (rows) and cpu_columns.cpp (any other axis) share.
#pragma once

#include "../../_cpu/kernels.h"

namespace online_softmax {
namespace ONLINE_SOFTMAX_ISA {

void softmax_forward(const Lines& lines, Softmax operation, int threads);
void softmax_backward(const Lines& lines, Softmax operation, int threads);
void logsumexp_backward(const Lines& lines, int threads);

void softmax_forward_columns(const Lines& lines, Softmax operation, int threads);
void softmax_backward_columns(const Lines& lines, Softmax operation, int threads);

}  // namespace ONLINE_SOFTMAX_ISA

namespace {

// The dtype of computation: double as soon as one array is.
inline bool in_double(const Lines& lines) {
    for (int i = 0; i < lines.operands; ++i) {
        if (lines.operand[i].dtype == DType::float64) return true;
    }
    return false;
}

}  // namespace
}  // namespace online_softmax
