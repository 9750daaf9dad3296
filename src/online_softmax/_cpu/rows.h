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

// The summary of [begin, end) of a row, at most a piece: each block's maximum, then its sum while it is in cache.
template <class T, class Source>
Summary<T> summarise_piece(Source& row, std::int64_t begin, std::int64_t end) {
    Summary<T> piece = empty_summary<T>();
    for_each_block(begin, end, [&](std::int64_t i, std::int64_t count) {
        const T* x = row.block(i, count);
        const T m = larger(maximum(x, count), piece.m);
        const Summary<T> block{m, 0.0, static_cast<double>(sum_of_exponentials(x, count, m)), i};
        piece = i == begin ? block : combine(piece, block);
    });
    return piece;
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
