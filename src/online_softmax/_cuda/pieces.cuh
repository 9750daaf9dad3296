// A row split over blocks that do not meet: the piece that falls to this block.
#pragma once
#include "rows.cuh"

namespace online_softmax {

// A piece is a row of its own, one that starts on a word unless it is the row's first.
struct Piece {
    int64 row, offset;  // elements from the row's start to the piece's
    int index;
    Part part;

    __device__ __forceinline__ Piece(const Input* x, const RowMap& map, int64 length, int pieces) {
        row = blockIdx.x / pieces, index = int(blockIdx.x % pieces);
        constexpr int words = kGroup * kSlots;
        const int head = window_head(x + map(row));
        offset = index == 0 ? 0 : int64(index) * words * kElements - head;
        const int64 left = length - offset;
        part = part_of_row<Input>(index == 0 ? head : 0, int(min(left, int64(words) * kElements)), 0, words);
    }
};

}  // namespace online_softmax
