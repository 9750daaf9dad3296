// What Python hands to the kernels: arrays of any strides, and the lines of them that an operation works on.
#pragma once

#include <cstdint>

namespace online_softmax {

enum class DType : int { float16, bfloat16, float32, float64, int32, int64 };  // integers: targets only

inline int size_of(DType dtype) {
    constexpr int sizes[] = {2, 2, 4, 8, 4, 8};
    return sizes[static_cast<int>(dtype)];
}

constexpr int max_dimensions = 64;  // NumPy's

// One array of an operation.  Strides count bytes; `axis_stride` is 0 for an array that lacks the axis.
struct Operand {
    char* data;
    DType dtype;
    std::int64_t axis_stride;
    std::int64_t strides[max_dimensions];  // along Lines::shape
};

// The lines an operation reduces: one for every index of `shape`, each of `length` elements along the axis.
struct Lines {
    std::int64_t length;
    std::int64_t count;  // the product of shape
    int dimensions;      // of shape, without the axis; neighbours that can be walked as one have been joined
    std::int64_t shape[max_dimensions];
    // Many lines are worked on at once, along the last dimension: there they lie side by side, or they are short.
    bool columns;
    int operands;
    Operand operand[4];

    // Where line `index` of an operand begins.
    char* line(const Operand& o, std::int64_t index) const {
        std::int64_t offset = 0;
        for (int d = dimensions - 1; d > 0; --d) {
            offset += index % shape[d] * o.strides[d];
            index /= shape[d];
        }
        return o.data + offset + (dimensions > 0 ? index * o.strides[0] : 0);
    }
};

}  // namespace online_softmax
