// Rows read and written a block at a time, as the dtype of computation.
#pragma once

#include <cstdint>

#include "convert.h"
#include "summary.h"
#include "types.h"

namespace online_softmax {
namespace {

// Gives a row's blocks as T: where they lie when they are that already, else from a buffer in the first cache.
template <class T>
class Reader {
public:
    Reader(const Operand& array, const char* row)
        : row_(row),
          dtype_(array.dtype),
          stride_(array.axis_stride),
          direct_(array.dtype == dtype_of<T> && stride_ == static_cast<std::int64_t>(sizeof(T))) {}

    const T* block(std::int64_t begin, std::int64_t count) {
        const char* from = row_ + begin * stride_;
        if (direct_) return reinterpret_cast<const T*>(from);
        load(dtype_, from, stride_, count, buffer_);
        return buffer_;
    }

private:
    const char* row_;
    DType dtype_;
    std::int64_t stride_;
    bool direct_;
    alignas(64) T buffer_[block_length];
};

// Takes a row's blocks as T: block() is where to put one, finish_block() brings it to the array.
template <class T>
class Writer {
public:
    Writer(const Operand& array, char* row)
        : row_(row),
          dtype_(array.dtype),
          stride_(array.axis_stride),
          direct_(array.dtype == dtype_of<T> && stride_ == static_cast<std::int64_t>(sizeof(T))) {}

    T* block(std::int64_t begin) { return direct_ ? reinterpret_cast<T*>(row_ + begin * stride_) : buffer_; }

    void finish_block(std::int64_t begin, std::int64_t count) {
        if (!direct_) store(dtype_, buffer_, count, row_ + begin * stride_, stride_);
    }

private:
    char* row_;
    DType dtype_;
    std::int64_t stride_;
    bool direct_;
    alignas(64) T buffer_[block_length];
};

// Calls body(begin, count) for every block of [begin, end).
template <class Body>
ONLINE_SOFTMAX_INLINE void for_each_block(std::int64_t begin, std::int64_t end, Body body) {
    for (std::int64_t i = begin; i < end; i += block_length) body(i, end - i < block_length ? end - i : block_length);
}

// Whether map_sixteen_bits can go from a line of one array to a line of the other.
inline bool both_sixteen_bits(const Operand& in, const Operand& out) {
    return in.dtype == out.dtype && (in.dtype == DType::float16 || in.dtype == DType::bfloat16) && in.axis_stride == 2 &&
           out.axis_stride == 2;
}

template <class T, class Out, class Value>
ONLINE_SOFTMAX_INLINE void map_numbers(const Out* x, std::int64_t count, Out* y, Value value) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = narrow_number<Out>(value(static_cast<T>(widen(x[i]))));  // hot: 16 bits
}

// y = value(x) for [begin, end) of a line of 16-bit numbers, in one loop without buffers.  No value may be NaN.
template <class T, class Value>
ONLINE_SOFTMAX_INLINE void map_sixteen_bits(DType dtype, const char* from, char* to, std::int64_t begin, std::int64_t end,
                                            Value value) {
    from += 2 * begin, to += 2 * begin;
    if (dtype == DType::bfloat16) {
        map_numbers<T>(reinterpret_cast<const Brain*>(from), end - begin, reinterpret_cast<Brain*>(to), value);
    } else {
        map_numbers<T>(reinterpret_cast<const Half*>(from), end - begin, reinterpret_cast<Half*>(to), value);
    }
}

// The summary of [begin, end) of a row, at most a piece.
template <class T, class Source>
Summary<T> summarise_piece(Source& row, std::int64_t begin, std::int64_t end) {
    if (end - begin <= block_length) {
        const T* x = row.block(begin, end - begin);
        const T m = maximum(x, end - begin);
        return {m, 0.0, static_cast<double>(sum_of_exponentials(x, end - begin, m)), begin};
    }
    Running<T> piece(begin);
    for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
        const T* x = row.block(i, count);
        if (is_finite(piece.reference())) {
            const State<T> block = maximum_and_sum(x, count, piece.reference());
            if (piece.within_reach(block.m)) return piece.add(i, block.m, block.s);
        }
        const T m = maximum(x, count);
        piece.move_to(piece.reference_for(m));
        piece.add(i, m, sum_of_exponentials(x, count, piece.reference()));
    });
    return piece.summary();
}

template <class T, class Source>
Finished<T> finish_row(const Summary<T>& summary, Source& row, std::int64_t length) {
    return finish(summary, length, [&] {
        const std::int64_t left = length - summary.where;
        return row.block(summary.where, left < block_length ? left : block_length);
    });
}

}  // namespace
}  // namespace online_softmax
