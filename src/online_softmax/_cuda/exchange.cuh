// How the warps that share a row tell each other what they found: every warp's record reaches every block.
#pragma once
#include "async.cuh"
#include "functions.cuh"
#include "geometry.cuh"

namespace online_softmax {

constexpr int kRecords = kCluster * kWarps;

// RECORD numbers a warp.  Two sets of records and barriers, used in turn, so that a fast warp's next record cannot meet
// a slow warp still reading the last ones: a block sends turn n + 2 only after every warp has sent turn n + 1.
template <class A, int RECORD>
struct Exchange {
    static_assert(RECORD * sizeof(A) % 8 == 0, "records travel in units of eight bytes");
    static constexpr int kUnits = RECORD * sizeof(A) / 8;
    static constexpr int kBytes = kRecords * RECORD * sizeof(A);
    struct Shared {
        alignas(16) A records[2][kRowsPerBlock * kRecords * RECORD];
        uint64 barriers[2];
    };

    Shared& shared;
    int turn = 0;

    __device__ __forceinline__ explicit Exchange(Shared& memory) : shared(memory) {
        if constexpr (kCluster > 1) {
            if (threadIdx.x == 0) {
                barrier_init(&shared.barriers[0], 1);
                barrier_init(&shared.barriers[1], 1);
                barrier_init_visible_to_cluster();
            }
            __syncwarp();  // racecheck takes the barriers to be initialised by another lane than the first
            if (threadIdx.x == 0) {
                barrier_expect(&shared.barriers[0], kBytes);
                barrier_expect(&shared.barriers[1], kBytes);
            }
            cluster_arrive();  // waited for just before the first record leaves: loads are on their way meanwhile
        }
    }

    // The warp's record (the same in all its lanes) goes out; all kRecords of this turn come back.
    __device__ __forceinline__ const A* swap(const A (&record)[RECORD]) {
        const int lane = threadIdx.x % 32, group = threadIdx.x / kGroup, warp = threadIdx.x % kGroup / 32, set = turn & 1;
        A* records = shared.records[set] + group * kRecords * RECORD;
        if constexpr (kCluster > 1) {
            if (turn == 0) cluster_wait();
            if (lane < kCluster) {
                union { A record[RECORD]; uint64 units[kUnits]; } mail;
#pragma unroll
                for (int r = 0; r < RECORD; ++r) mail.record[r] = record[r];
                const uint32 to = address_in_block(shared_address(records + (cluster_rank() * kWarps + warp) * RECORD), lane);
                const uint32 barrier = address_in_block(shared_address(&shared.barriers[set]), lane);
#pragma unroll
                for (int u = 0; u < kUnits; ++u) send_async(to + u * 8, mail.units[u], barrier);
            }
            barrier_wait(&shared.barriers[set], (turn >> 1) & 1);
            if (threadIdx.x == 0) barrier_expect(&shared.barriers[set], kBytes);
        } else {
            if (lane == 0) {
#pragma unroll
                for (int r = 0; r < RECORD; ++r) records[warp * RECORD + r] = record[r];
            }
            // A group waits for its own warps only (barrier 0 is __syncthreads).
            if constexpr (kGroup == kThreads) __syncthreads();
            else asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroup) : "memory");
        }
        ++turn;
        return records;
    }

    // swap in two halves, of which the second is the first warp's alone; what lies between hides how long mail takes.
    __device__ __forceinline__ void post(const A (&record)[RECORD]) {
        static_assert(kGroup == kThreads);
        const int lane = threadIdx.x % 32;
        if constexpr (kCluster > 1) {
            if (turn == 0) cluster_wait();
            if (lane < kCluster) send(record, lane);
        } else if (lane == 0) {
            keep(record);
        }
    }
    // The records of what was posted, once all have come; nullptr but in the first warp.
    __device__ __forceinline__ const A* collect() {
        const int set = turn & 1, warp = threadIdx.x / 32;
        if constexpr (kCluster > 1) {
            if (warp == 0) {
                barrier_wait(&shared.barriers[set], (turn >> 1) & 1);
                if (threadIdx.x == 0) barrier_expect(&shared.barriers[set], kBytes);
            }
        } else {
            __syncthreads();
        }
        ++turn;
        return warp == 0 ? shared.records[set] : nullptr;
    }

    // The same, but the records go to block 0 alone.  The last turn.
    __device__ __forceinline__ const A* gather(const A (&record)[RECORD]) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, set = turn & 1;
        A* const records = shared.records[set];
        if constexpr (kCluster > 1) {
            if (lane == 0) send(record, 0);
            if (cluster_rank() != 0 || warp != 0) return nullptr;
            barrier_wait(&shared.barriers[set], (turn >> 1) & 1);
        } else {
            if (lane == 0) keep(record);
            __syncthreads();
            if (warp != 0) return nullptr;
        }
        return records;
    }

private:
    __device__ __forceinline__ A* mine() const {
        return shared.records[turn & 1] + ((kCluster > 1 ? cluster_rank() : 0) * kWarps + int(threadIdx.x) / 32) * RECORD;
    }
    __device__ __forceinline__ void send(const A (&record)[RECORD], int block) const {
        union { A record[RECORD]; uint64 units[kUnits]; } mail;
#pragma unroll
        for (int r = 0; r < RECORD; ++r) mail.record[r] = record[r];
        const uint32 to = address_in_block(shared_address(mine()), block);
        const uint32 barrier = address_in_block(shared_address(&shared.barriers[turn & 1]), block);
#pragma unroll
        for (int u = 0; u < kUnits; ++u) send_async(to + u * 8, mail.units[u], barrier);
    }
    __device__ __forceinline__ void keep(const A (&record)[RECORD]) const {
#pragma unroll
        for (int r = 0; r < RECORD; ++r) mine()[r] = record[r];
    }
};

// fn(record) for the records that fall to this lane; together the lanes see each one once.
template <class A, int RECORD, int AT_ONCE = kRecords, class Fn>
__device__ __forceinline__ void for_my_records(const A* records, Fn fn) {
#pragma unroll AT_ONCE
    for (int q = 0; q < (kRecords + 31) / 32; ++q) {
        const int index = q * 32 + int(threadIdx.x % 32);
        if (index < kRecords) fn(records + index * RECORD);
    }
}

}  // namespace online_softmax
