// What a kernel's threads ask of the machine that runs them (machine.cpp).  Includes nothing: it is compiled into every kernel.
#pragma once

namespace emulator {

using uint32 = unsigned int;
using uint64 = unsigned long long;

struct Index { unsigned x = 0, y = 0, z = 0; };
extern Index thread_index, block_index, block_size, grid_size;  // of the thread that runs now
extern void* dynamic_shared;                                    // of its block

struct Launch {  // launch.py has the same fields
    int clusters, cluster, threads, dynamic_bytes, backwards;
};
// Runs all threads to their ends.  What went wrong, or null.
const char* run(const Launch& launch, void (*thread)(const void*), const void* arguments);
[[noreturn]] void fail(const char* what);  // ends the launch

// Static shared memory: every variable has its place, the same in all blocks.
int reserve_shared(int bytes);
void* static_shared(int place);
template <class T, class Variable>
T& shared_variable(Variable) {  // a closure's type: one for each declaration, and each instantiation of what it is in
    static const int place = reserve_shared(sizeof(T));
    return *static_cast<T*>(static_shared(place));
}

// Addresses in the shared memory of a cluster: the block's rank above 24 bits.
uint32 shared_address(const void* pointer);
uint32 address_in_block(uint32 address, int rank);
int rank_in_cluster();

// Where threads meet: each waits until all have come.
const uint64* exchange(uint32 lanes, uint64 value);     // what every lane of the warp brought
int meet(int barrier, int threads, bool vote);          // how many threads voted
void cluster_arrive();
void cluster_wait();

// Copies that land when they are waited for, and not before: in between, the place holds what nobody wants.
void copy_async(uint32 to, const void* from, int bytes);
void commit_copies();
void wait_for_copies(int pending);

void barrier_init(uint32 barrier, int arrivals);
void barrier_expect(uint32 barrier, int bytes);  // and arrive
bool barrier_passed(uint32 barrier, int parity);  // if not, the thread first lets others go on
void send(uint32 to, uint64 value, uint32 barrier);

}  // namespace emulator
