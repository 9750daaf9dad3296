// A block and its threads, and what they wait for.
#pragma once
#include <ucontext.h>

#include <map>
#include <utility>
#include <vector>

#include "machine.h"

namespace emulator {

struct Copy { uint32 to; const void* from; int bytes; };

struct Meeting {  // of a warp's lanes
    uint64 brought[32] = {}, all[32] = {};
    uint32 here = 0;
    uint64 turn = 0;
};

struct Barrier {  // of a block's threads
    int arrived = 0, votes = 0, result = 0;
    uint64 turn = 0;
};

struct TransactionBarrier {  // an mbarrier
    int expected = 0, missing = 0, bytes = 0, parity = 0;
    void turn_if_complete() {
        if (missing == 0 && bytes == 0) parity ^= 1, missing = expected;
    }
};

struct Block {
    int rank = 0, running = 0;
    Index index;
    std::vector<char> memory;
    std::map<int, Barrier> barriers;
    std::map<std::pair<int, uint32>, Meeting> meetings;  // by warp and lanes
    std::map<uint32, TransactionBarrier> transactions;   // by address
};

struct Thread {
    ucontext_t context;
    Block* block;
    unsigned index;
    bool done = false;
    const char* waits_for = "";
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;
    uint64 cluster_arrivals = 0;
};

}  // namespace emulator
