// How lines are dealt to threads: whole lines, or, when there are too few of them, pieces of each line in turn.
// Pieces are the same either way and folded in their order, so the choice changes no bit.
#pragma once

#include <cstdint>

#include "blocks.h"
#include "threads.h"

namespace online_softmax {
namespace {

// A std::unique_ptr<T[]> of this translation unit's own: the destructor of the standard one may be emitted out of line,
// and the linker would then keep one copy for all instruction sets.
template <class T>
class Scratch {
public:
    explicit Scratch(std::int64_t count) : data_(new T[count]) {}
    ~Scratch() { delete[] data_; }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    T& operator[](std::int64_t i) { return data_[i]; }
    const T& operator[](std::int64_t i) const { return data_[i]; }

private:
    T* data_;
};

inline std::int64_t number_of_pieces(std::int64_t length) {
    return (length + piece_length - 1) / piece_length;
}

// Calls line(index, threads) for each of `count` lines: many at once with one thread each, or one after the other with
// all threads each.  `work` is the number of elements of a line, or of the tile of columns that stands for one.
template <class Line>
void for_each_line(std::int64_t count, std::int64_t length, int threads, Line line, std::int64_t work) {
    const std::int64_t pieces = number_of_pieces(length);
    const bool share = (pieces >= 2 && count < threads) || (pieces >= 8 && count < 4 * threads);
    if (share) {
        for (std::int64_t i = 0; i < count; ++i) line(i, threads);
        return;
    }
    parallel(count, work, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) line(i, 1);
    });
}

template <class Line>
void for_each_line(std::int64_t count, std::int64_t length, int threads, Line line) {
    for_each_line(count, length, threads, line, length);
}

template <class Piece>
ONLINE_SOFTMAX_INLINE void for_each_piece(std::int64_t length, int threads, Piece piece) {
    parallel(number_of_pieces(length), piece_length, threads, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
            const std::int64_t begin = i * piece_length;
            piece(i, begin, length - begin < piece_length ? length : begin + piece_length);
        }
    });
}

// fold(fold(piece 0, piece 1), piece 2) ...; `nothing` for a line without elements.
template <class Part, class Piece, class Fold>
ONLINE_SOFTMAX_INLINE Part fold_pieces(std::int64_t length, int threads, Part nothing, Piece piece, Fold fold) {
    const std::int64_t count = number_of_pieces(length);
    if (count == 0) return nothing;
    if (count == 1) return piece(0, length);
    Part whole = nothing;
    if (threads <= 1) {
        for_each_piece(length, 1, [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
            whole = i == 0 ? piece(begin, end) : fold(whole, piece(begin, end));
        });
        return whole;
    }
    Scratch<Part> parts(count);
    for_each_piece(length, threads, [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
        parts[i] = piece(begin, end);
    });
    whole = parts[0];
    for (std::int64_t i = 1; i < count; ++i) whole = fold(whole, parts[i]);
    return whole;
}

}  // namespace
}  // namespace online_softmax
