// From arrays as Python has them to the lines of an operation.
#pragma once

#include <cstdint>

#include "types.h"

namespace online_softmax {

struct Array {
    char* data;
    DType dtype;
    int dimensions;
    std::int64_t shape[max_dimensions];
    std::int64_t strides[max_dimensions];  // in bytes
};

// The lines along `axis` of arrays[0 .. operands).  An array with a dimension less than the first lacks the axis.
// False when the kernels cannot read one of them: an element that does not lie on a multiple of its size.
// Throws std::invalid_argument when shapes differ.
bool make_lines(const Array* const* arrays, int operands, int axis, Lines& lines);

// Whether every line lies without gaps.
bool rows_are_contiguous(const Lines& lines);

}  // namespace online_softmax
