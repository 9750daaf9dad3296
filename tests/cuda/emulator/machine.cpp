// Runs a kernel's threads on one CPU thread, each with a stack of its own, in an order that is the same every time: a thread
// goes on until it waits for others.  The blocks of a cluster run together, clusters one after the other.
//
// It is stricter than a GPU where that finds errors: memory starts as NaN, copies land as late as they may, an access that a
// GPU would refuse or get wrong ends the launch with a word on it, and so does a thread that waits for what cannot come.
#include "machine.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "block.h"

namespace emulator {

Index thread_index, block_index, block_size, grid_size;
void* dynamic_shared;

namespace {

constexpr int kStack = 1 << 17;         // bytes; touched pages alone take memory
constexpr int kLargestShared = 227 << 10;
constexpr int kGuard = 4096;            // bytes behind dynamic shared memory that nobody may write
constexpr char kUntouched = char(0xff);  // of memory: NaN as any floating-point number
constexpr uint32 kRank = 24;            // bits of an address below the block's rank

Launch launch;
void (*kernel)(const void*);
const void* kernel_arguments;
std::vector<std::unique_ptr<Block>> blocks;  // of the cluster that runs
Thread* current;
ucontext_t scheduler;
uint64 progress, cluster_arrived;
std::string error;
int static_bytes;

int static_start() { return (launch.dynamic_bytes + kGuard + 127) / 128 * 128; }

void leave() { swapcontext(&current->context, &scheduler); }

template <class Condition>
void wait_until(const char* what, Condition condition) {
    current->waits_for = what;
    while (!condition()) leave();
    ++progress;
}

char* shared_memory(uint32 address, uint32 bytes) {
    const uint32 rank = address >> kRank, offset = address & ((1u << kRank) - 1);
    if (rank >= blocks.size()) fail("an address in a block that is not of the cluster");
    if (blocks[rank]->running == 0) fail("an access to the shared memory of a block that has ended");
    const bool dynamic = offset + bytes <= uint32(launch.dynamic_bytes);
    const bool fixed = int(offset) >= static_start() && offset + bytes <= uint32(static_start() + static_bytes);
    if (!dynamic && !fixed) fail("an address outside shared memory");
    return blocks[rank]->memory.data() + offset;
}

TransactionBarrier& transaction_barrier(uint32 address) {
    shared_memory(address, 8);
    const auto found = blocks[address >> kRank]->transactions.find(address);
    if (found == blocks[address >> kRank]->transactions.end()) fail("an mbarrier that was not initialised");
    return found->second;
}

void start() {
    kernel(kernel_arguments);
    current->done = true;
    --current->block->running;
    ++progress;
    for (;;) leave();
}

void go_on(Thread& thread) {
    current = &thread;
    thread_index.x = thread.index;
    block_index = thread.block->index;
    dynamic_shared = thread.block->memory.data();
    swapcontext(&scheduler, &thread.context);
}

std::string who(const Thread& thread) {
    return "block " + std::to_string(thread.block->index.x) + ", thread " + std::to_string(thread.index);
}

// A warp goes on until it can no more, then the next one: its stacks stay in the cache, and it runs ahead of the others as
// far as it may.
void run_threads(std::vector<std::unique_ptr<Thread>>& threads) {
    for (size_t left = threads.size();;) {
        const uint64 before = progress;
        const Thread* waiting = nullptr;
        for (size_t warp = 0; warp < threads.size(); warp += 32) {
            for (uint64 last = progress - 1; progress != last;) {
                last = progress;
                for (size_t lane = warp; lane < warp + 32 && lane < threads.size(); ++lane) {
                    if (threads[lane]->done) continue;
                    go_on(*threads[lane]);
                    if (!error.empty()) return;
                    if (threads[lane]->done) --left;
                    else waiting = threads[lane].get();
                }
            }
        }
        if (left == 0) return;
        if (progress == before) {
            error = who(*waiting) + " waits for ever for " + waiting->waits_for;
            return;
        }
    }
}

void run_cluster(int cluster, char* stacks) {
    std::vector<std::unique_ptr<Thread>> threads;
    const int memory = static_start() + (48 << 10);
    for (int rank = 0; rank < launch.cluster; ++rank) {
        auto block = std::make_unique<Block>();
        block->rank = rank, block->running = launch.threads;
        block->index.x = unsigned(cluster * launch.cluster + rank);
        block->memory.assign(memory, kUntouched);
        for (int index = 0; index < launch.threads; ++index) {
            auto thread = std::make_unique<Thread>();
            thread->block = block.get(), thread->index = unsigned(index);
            getcontext(&thread->context);
            thread->context.uc_stack.ss_sp = stacks + threads.size() * kStack;
            thread->context.uc_stack.ss_size = kStack;
            makecontext(&thread->context, start, 0);
            threads.push_back(std::move(thread));
        }
        blocks.push_back(std::move(block));
    }
    if (launch.backwards) std::vector<std::unique_ptr<Thread>>(std::make_move_iterator(threads.rbegin()),
                                                               std::make_move_iterator(threads.rend())).swap(threads);
    run_threads(threads);
    for (const auto& block : blocks) {
        if (!error.empty()) break;
        for (int i = launch.dynamic_bytes; i < launch.dynamic_bytes + kGuard; ++i)
            if (block->memory[i] != kUntouched) error = "a write behind dynamic shared memory";
    }
    if (error.empty() && launch.dynamic_bytes + static_bytes > kLargestShared) error = "more shared memory than there is";
    blocks.clear();
    cluster_arrived = 0;
}

}  // namespace

const char* run(const Launch& wanted, void (*thread)(const void*), const void* arguments) {
    launch = wanted, kernel = thread, kernel_arguments = arguments;
    block_size = {unsigned(launch.threads), 1, 1};
    grid_size = {unsigned(launch.clusters * launch.cluster), 1, 1};
    error.clear();
    const size_t bytes = size_t(launch.cluster) * launch.threads * kStack;
    void* const stacks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return "no memory for the threads' stacks";
    for (int cluster = 0; cluster < launch.clusters && error.empty(); ++cluster)
        run_cluster(cluster, static_cast<char*>(stacks));
    munmap(stacks, bytes);
    return error.empty() ? nullptr : error.c_str();
}

void fail(const char* what) {
    error = who(*current) + ": " + what;
    for (;;) leave();
}

int reserve_shared(int bytes) {
    const int place = static_bytes;
    static_bytes += (bytes + 127) / 128 * 128;
    if (static_bytes > 48 << 10) fail("more static shared memory than there is");
    return place;
}

void* static_shared(int place) { return current->block->memory.data() + static_start() + place; }

uint32 shared_address(const void* pointer) {
    const std::ptrdiff_t offset = static_cast<const char*>(pointer) - current->block->memory.data();
    if (offset < 0 || offset >= std::ptrdiff_t(current->block->memory.size())) fail("not an address in shared memory");
    return uint32(current->block->rank) << kRank | uint32(offset);
}

uint32 address_in_block(uint32 address, int rank) { return uint32(rank) << kRank | (address & ((1u << kRank) - 1)); }

int rank_in_cluster() { return current->block->rank; }

const uint64* exchange(uint32 lanes, uint64 value) {
    const int warp = int(current->index / 32), lane = int(current->index % 32);
    if (!(lanes >> lane & 1)) fail("a shuffle of lanes that this one is not of");
    Meeting& meeting = current->block->meetings[{warp, lanes}];
    const uint64 turn = meeting.turn;
    meeting.brought[lane] = value, meeting.here |= 1u << lane;
    if (meeting.here == lanes) {
        std::memcpy(meeting.all, meeting.brought, sizeof meeting.all);
        meeting.here = 0, ++meeting.turn;
    }
    wait_until("lanes of its warp", [&] { return meeting.turn != turn; });
    return meeting.all;
}

int meet(int number, int threads, bool vote) {
    Barrier& barrier = current->block->barriers[number];
    const uint64 turn = barrier.turn;
    barrier.votes += vote;
    if (++barrier.arrived == threads) {
        barrier.result = barrier.votes;
        barrier.arrived = barrier.votes = 0, ++barrier.turn;
    }
    wait_until("threads of its block", [&] { return barrier.turn != turn; });
    return barrier.result;
}

void cluster_arrive() { ++cluster_arrived, ++current->cluster_arrivals; }

void cluster_wait() {
    const uint64 wanted = current->cluster_arrivals * launch.cluster * launch.threads;
    wait_until("blocks of its cluster", [&] { return cluster_arrived >= wanted; });
}

void copy_async(uint32 to, const void* from, int bytes) {
    if (to % 16 || reinterpret_cast<std::uintptr_t>(from) % 16) fail("a copy of 16 bytes that does not start on 16 bytes");
    if (bytes < 0 || bytes > 16) fail("a copy of more than 16 bytes");
    std::memset(shared_memory(to, 16), kUntouched, 16);
    current->open.push_back({to, from, bytes});
}

void commit_copies() { current->groups.push_back(std::exchange(current->open, {})); }

void wait_for_copies(int pending) {
    while (int(current->groups.size()) > pending) {
        for (const Copy& copy : current->groups.front()) {
            char word[16] = {};
            std::memcpy(word, copy.from, copy.bytes);
            std::memcpy(shared_memory(copy.to, 16), word, 16);
        }
        current->groups.erase(current->groups.begin());
    }
}

void barrier_init(uint32 barrier, int arrivals) {
    shared_memory(barrier, 8);
    blocks[barrier >> kRank]->transactions[barrier] = {arrivals, arrivals, 0, 0};
}

void barrier_expect(uint32 address, int bytes) {
    TransactionBarrier& barrier = transaction_barrier(address);
    barrier.bytes += bytes, --barrier.missing;
    barrier.turn_if_complete();
}

bool barrier_passed(uint32 address, int parity) {
    const TransactionBarrier& barrier = transaction_barrier(address);
    wait_until("an mbarrier", [&] { return barrier.parity != parity; });
    return true;
}

void send(uint32 to, uint64 value, uint32 address) {
    std::memcpy(shared_memory(to, 8), &value, 8);
    TransactionBarrier& barrier = transaction_barrier(address);
    barrier.bytes -= 8;
    barrier.turn_if_complete();
}

}  // namespace emulator
