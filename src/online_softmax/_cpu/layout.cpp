#include "layout.h"

#include <stdexcept>

namespace online_softmax {
namespace {

bool aligned(const Array& a) {
    const int size = size_of(a.dtype);
    if (reinterpret_cast<std::uintptr_t>(a.data) % size != 0) return false;
    for (int d = 0; d < a.dimensions; ++d) {
        if (a.shape[d] > 1 && a.strides[d] % size != 0) return false;
    }
    return true;
}

// Whether every operand walks dimension d of `lines` as part of the one before.
bool joins(const Lines& lines, const std::int64_t (&strides)[4], std::int64_t extent) {
    for (int i = 0; i < lines.operands; ++i) {
        if (lines.operand[i].strides[lines.dimensions - 1] != strides[i] * extent) return false;
    }
    return true;
}

void append(Lines& lines, const std::int64_t (&strides)[4], std::int64_t extent) {
    lines.count *= extent;
    if (extent == 1) return;
    if (lines.dimensions > 0 && joins(lines, strides, extent)) {
        lines.shape[lines.dimensions - 1] *= extent;
    } else {
        lines.shape[lines.dimensions++] = extent;
    }
    for (int i = 0; i < lines.operands; ++i) lines.operand[i].strides[lines.dimensions - 1] = strides[i];
}

// Arrays with one number a line are read once, however they lie; so is one repeated along the dimension.
bool contiguous_along(const Lines& lines, int dimension) {
    for (int i = 0; i < lines.operands; ++i) {
        const Operand& o = lines.operand[i];
        if (o.axis_stride != 0 && o.strides[dimension] != 0 && o.strides[dimension] != size_of(o.dtype)) return false;
    }
    return true;
}

void require(bool same) {
    if (!same) throw std::invalid_argument("the arrays of an operation must have the same shape");
}

// Below this, vectors across columns would be mostly empty, and reading each line on its own is faster.
constexpr std::int64_t fewest_columns = 8;
// Short rows are worked on side by side as well: beyond this length, reading them number by number costs more than it saves.
constexpr std::int64_t longest_short_row = 12, fewest_short_rows = 128;

}  // namespace

bool rows_are_contiguous(const Lines& lines) {
    for (int i = 0; i < lines.operands; ++i) {
        const Operand& o = lines.operand[i];
        if (o.axis_stride != 0 && o.axis_stride != size_of(o.dtype)) return false;
    }
    return true;
}

namespace {

bool lie_beside_each_other(const Lines& lines, int last) {
    return lines.shape[last] >= fewest_columns && !rows_are_contiguous(lines) && contiguous_along(lines, last);
}

bool are_short_rows(const Lines& lines, int last) {
    return lines.length <= longest_short_row && lines.shape[last] >= fewest_short_rows;
}

}  // namespace

bool make_lines(const Array* const* arrays, int operands, int axis, Lines& lines) {
    const Array& first = *arrays[0];
    lines.length = first.shape[axis];
    lines.count = 1;
    lines.dimensions = 0;
    lines.columns = false;
    lines.operands = operands;
    for (int i = 0; i < operands; ++i) {
        if (!aligned(*arrays[i])) return false;
        const bool has_axis = arrays[i]->dimensions == first.dimensions;
        require(has_axis ? arrays[i]->shape[axis] == lines.length : arrays[i]->dimensions == first.dimensions - 1);
        lines.operand[i].data = arrays[i]->data;
        lines.operand[i].dtype = arrays[i]->dtype;
        lines.operand[i].axis_stride = has_axis ? arrays[i]->strides[axis] : 0;
    }
    for (int d = 0; d < first.dimensions; ++d) {
        if (d == axis) continue;
        std::int64_t strides[4] = {};
        for (int i = 0; i < operands; ++i) {
            const int own = arrays[i]->dimensions == first.dimensions || d < axis ? d : d - 1;
            require(arrays[i]->shape[own] == first.shape[d]);
            strides[i] = arrays[i]->strides[own];
        }
        append(lines, strides, first.shape[d]);
    }
    const int last = lines.dimensions - 1;
    lines.columns = last >= 0 && (lie_beside_each_other(lines, last) || are_short_rows(lines, last));
    return true;
}

}  // namespace online_softmax
