// A row as the 16-byte words of the aligned window that encloses it, so that rows which start anywhere are still read
// and written 16 bytes at a time: only the first and the last word are looked at element by element.
#pragma once
#include "async.cuh"
#include "geometry.cuh"

namespace online_softmax {

// Where row r starts when the rows lie along one or two strided axes (elements).
struct RowMap {
    int64 inner, outer_stride, inner_stride;
    __device__ __forceinline__ int64 operator()(int64 row) const {
        if (row < inner) return row * inner_stride;  // always, with one axis: no division
        const uint32 outer = uint32(row) / uint32(inner);  // rows.py copies where there are more
        return outer * outer_stride + (row - outer * inner) * inner_stride;
    }
};

// The same pointer, but the compiler does not know it: what follows from it is worked out again instead of kept.
template <class T>
__device__ __forceinline__ T* hidden(T* pointer) {
    asm volatile("" : "+l"(pointer));
    return pointer;
}

// One block's (or group's) part of a row.  Positions count elements from the part's first word.
struct Part {
    int column;                  // column of position 0; negative where the window starts before the row
    int low, high;               // the positions that belong to the row: [low, high)
    int whole_from, whole_to;    // the words that hold nothing else

    __device__ __forceinline__ bool whole(int word) const {
        return uint32(word - whole_from) < uint32(whole_to - whole_from);
    }
    template <int PER_WORD>
    __device__ __forceinline__ bool touches(int word) const {  // any of the row's elements
        return word * PER_WORD < high && (word + 1) * PER_WORD > low;
    }
    // Whether all words of a thread that starts at word `first` are: then nothing needs to be looked at one by one.
    template <int SLOTS_, int STRIDE>
    __device__ __forceinline__ bool all_whole(int first) const {
        return first >= whole_from && (SLOTS_ - 1) * STRIDE + first < whole_to;
    }
    __device__ __forceinline__ bool holds(int position) const { return position >= low && position < high; }
};

template <class T>
__device__ __forceinline__ int window_head(const T* row) {  // elements between the window's start and the row's
    return int((uint64(row) & 15) / sizeof(T));
}

// The part that starts at word `first` of the window and has room for `words` words.
template <class T>
__device__ __forceinline__ Part part_of_row(int head, int length, int first, int words) {
    constexpr int per_word = kPerWord<T>;
    Part part;
    part.column = first * per_word - head;
    part.low = first == 0 ? head : 0;
    part.high = max(min(length - part.column, words * per_word), part.low);
    part.whole_from = part.low > 0;
    part.whole_to = max(part.high / per_word, part.whole_from);
    return part;
}

// Rows are split evenly over the blocks of a cluster, by the row's own length and address and nothing else.
template <class T>
__device__ __forceinline__ Part share_of_row(const T* row, int length, int rank) {
    const int head = window_head(row);
    const int words = (head + length + kPerWord<T> - 1) / kPerWord<T>;
    const int share = (words + kCluster - 1) / kCluster;
    return part_of_row<T>(head, length, rank * share, share);
}

// Where this thread stands: the row of its group, and its block's part of it.
template <class T>
struct Place {
    int64 row;
    bool active;  // a group beyond the last row goes on with an empty one: its warp's shuffles need it
    const T* source;
    int rank;    // of the block in its cluster
    int thread;  // of the group
    Part part;
};

// Asked twice, before a row is read and before it is written, because in between registers hold the row and have no
// room for the answer.  `again` hides from the compiler that it is the same.  `ahead`: rows from the first one, where
// clusters stay.
template <class T>
__device__ __forceinline__ Place<T> place(const T* x, int64 rows, int length, const RowMap& map, int64 ahead = 0) {
    int again;
    asm volatile("mov.s32 %0, 0;" : "=r"(again));
    Place<T> here;
    here.row = int64(blockIdx.x + again) / kCluster * kRowsPerBlock + threadIdx.x / kGroup + ahead;
    here.active = here.row < rows;
    here.source = x + (here.active ? map(here.row) : 0);
    here.rank = kCluster > 1 ? cluster_rank() : 0;
    here.thread = threadIdx.x % kGroup + again;
    here.part = share_of_row(here.source, here.active ? length : 0, here.rank);
    return here;
}

// fn(index of the value in registers, its position) for each element of the row that a thread holds.
template <int SLOTS_, int PER_WORD, int STRIDE, class Fn>
__device__ __forceinline__ void for_each(const Part& part, int first, Fn fn) {
#pragma unroll
    for (int i = 0; i < SLOTS_; ++i) {
        const int word = i * STRIDE + first;
        if (part.whole(word)) {
#pragma unroll
            for (int k = 0; k < PER_WORD; ++k) fn(i * PER_WORD + k, word * PER_WORD + k);
        } else {
#pragma unroll
            for (int k = 0; k < PER_WORD; ++k)
                if (part.holds(word * PER_WORD + k)) fn(i * PER_WORD + k, word * PER_WORD + k);
        }
    }
}

// Whether a second array's row can be moved in the words of the first one: position 0 falls on a multiple of the pack.
template <class O, int PER_WORD>
__device__ __forceinline__ bool aligned_with(const O* row, const Part& part) {
    return uint64(row + part.column) % Pack<O, PER_WORD>::kAlignment == 0;
}

// Of rows that are read once; `writes`: by a kernel that writes as much.  By what the launch has room for: clusters that stay
// take long rows.
__device__ __forceinline__ uint64 policy_of_rows(bool writes = true) {
    constexpr int64 block = kThreads * kSlots * 16, many = int64(1) << 40;
    return policy_of_reading(!writes ? 0 : kPersistent ? many : gridDim.x * block);
}

// Starts copying this thread's words to shared memory.  Nothing beyond the row's end is read, and before its start only
// the rest of an aligned word.  SECOND: an array whose rows may start off the words of the first one.
template <class T, int SLOTS_, int STRIDE, bool SECOND = false>
__device__ __forceinline__ void copy_words_async(T* shared, const T* row, const Part& part, int first) {
    constexpr int per_word = kPerWord<T>;
    const T* source = row + part.column;
    if (SECOND && !aligned_with<T, per_word>(row, part)) {
        for_each<SLOTS_, per_word, STRIDE>(part, first, [&](int, int at) { shared[at] = source[at]; });
        return;
    }
    const int full = part.high / per_word;
#pragma unroll
    for (int i = 0; i < SLOTS_; ++i) {
        const int word = i * STRIDE + first;
        if (word < full) copy_async(shared + word * per_word, source + word * per_word);
    }
    const int rest = part.high % per_word, slot = (full - first) / STRIDE;
    if (rest != 0 && full >= first && full - first == slot * STRIDE && slot < SLOTS_)  // the row's last word
        copy_async(shared + full * per_word, source + full * per_word, rest * int(sizeof(T)));
}

// This thread's words as numbers; `missing` where a position is not the row's.  `source` is position 0, and read(address)
// gives a whole word as a Pack.  adjust(index, x) is applied to what is the row's.
template <class T, int SLOTS_, int STRIDE, class A, class Adjust, class Read>
__device__ __forceinline__ void load_words(A* values, const T* source, const Part& part, int first, A missing,
                                           Adjust adjust, Read read) {
    constexpr int per_word = kPerWord<T>;
    const auto load = [&](int i) {
        A* const mine = values + i * per_word;
        read(source + (i * STRIDE + first) * per_word).unpack(mine);
#pragma unroll
        for (int k = 0; k < per_word; ++k) mine[k] = adjust(i * per_word + k, mine[k]);
    };
    if (part.all_whole<SLOTS_, STRIDE>(first)) {
#pragma unroll
        for (int i = 0; i < SLOTS_; ++i) load(i);
        return;
    }
#pragma unroll
    for (int i = 0; i < SLOTS_; ++i) {
        const int word = i * STRIDE + first;
        if (part.whole(word)) {
            load(i);
            continue;
        }
#pragma unroll
        for (int k = 0; k < per_word; ++k) values[i * per_word + k] = missing;
        if (!part.touches<per_word>(word)) continue;
#pragma unroll
        for (int k = 0; k < per_word; ++k) {
            const int position = word * per_word + k;
            if (part.holds(position)) values[i * per_word + k] = adjust(i * per_word + k, A(widen(source[position])));
        }
    }
}

// From shared or global memory.
template <class T, int SLOTS_, int STRIDE, class A, class Adjust>
__device__ __forceinline__ void load_words(A* values, const T* source, const Part& part, int first, A missing,
                                           Adjust adjust) {
    load_words<T, SLOTS_, STRIDE>(values, source, part, first, missing, adjust, Pack<T, kPerWord<T>>::load);
}

template <class T, int SLOTS_, int STRIDE, class A>
__device__ __forceinline__ void load_words(A* values, const T* source, const Part& part, int first, A missing) {
    load_words<T, SLOTS_, STRIDE>(values, source, part, first, missing, [](int, A x) { return x; });
}

// Writes fn(index, position) to the row's positions that this thread holds.  `row` is column 0 of the output.
template <class O, int SLOTS_, int PER_WORD, int STRIDE, class A, class Fn>
__device__ __forceinline__ void store_words(O* row, const Part& part, int first, Fn fn) {
    O* target = row + part.column;
    const bool aligned = aligned_with<O, PER_WORD>(row, part);
    A results[PER_WORD];
    const auto compute = [&](int i) {
#pragma unroll
        for (int k = 0; k < PER_WORD; ++k) results[k] = fn(i * PER_WORD + k, (i * STRIDE + first) * PER_WORD + k);
    };
    const auto store = [&](int i) { Pack<O, PER_WORD>::of(results).store(target + (i * STRIDE + first) * PER_WORD); };
    if (aligned && part.all_whole<SLOTS_, STRIDE>(first)) {
#pragma unroll
        for (int i = 0; i < SLOTS_; ++i) compute(i), store(i);
        return;
    }
#pragma unroll
    for (int i = 0; i < SLOTS_; ++i) {
        const int word = i * STRIDE + first;
        compute(i);
        if (aligned && part.whole(word)) {
            store(i);
        } else if (part.touches<PER_WORD>(word)) {
#pragma unroll
            for (int k = 0; k < PER_WORD; ++k) {
                const int position = word * PER_WORD + k;
                if (part.holds(position)) target[position] = Narrow<O>::one(results[k]);
            }
        }
    }
}

}  // namespace online_softmax
