#include "memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

namespace online_softmax {
namespace {

constexpr std::size_t huge_page = std::size_t(2) << 20;
constexpr std::size_t blocks_at_most = 8;

std::size_t memory_of_the_machine() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

std::size_t round_up(std::size_t size) {
    return (size + huge_page - 1) / huge_page * huge_page;
}

void unmap(Memory memory) noexcept {
    munmap(memory.address, memory.size);
}

Memory map(std::size_t size) {
    const std::size_t room = size + huge_page;
    void* const found = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    const auto begin = reinterpret_cast<std::uintptr_t>(found);
    const std::uintptr_t aligned = round_up(begin), end = begin + room;
    if (aligned > begin) munmap(found, aligned - begin);
    if (end > aligned + size) munmap(reinterpret_cast<void*>(aligned + size), end - aligned - size);
    void* const address = reinterpret_cast<void*>(aligned);
#ifdef MADV_HUGEPAGE
    madvise(address, size, MADV_HUGEPAGE);
#endif
    return {address, size};
}

// Never destroyed: arrays may be freed after the end of main.
struct Kept {
    std::mutex mutex;
    std::vector<Memory> blocks;  // oldest first
    std::size_t size = 0;
    std::size_t limit = memory_of_the_machine() / 8;

    Memory remove(std::vector<Memory>::iterator found) {
        const Memory memory = *found;
        blocks.erase(found);
        size -= memory.size;
        return memory;
    }
    void shrink_to(std::size_t most) {
        while (blocks.size() > blocks_at_most || size > most) unmap(remove(blocks.begin()));
    }
};

Kept& kept();

void lock_kept() {
    kept().mutex.lock();
}
void unlock_kept() {
    kept().mutex.unlock();
}

Kept& kept() {
    static Kept* const all = [] {
        pthread_atfork(lock_kept, unlock_kept, unlock_kept);  // so that a child never finds it locked
        return new Kept;
    }();
    return *all;
}

}  // namespace

Memory take_memory(std::size_t size) {
    size = round_up(std::max(size, huge_page));
    const std::lock_guard<std::mutex> lock(kept().mutex);
    auto& blocks = kept().blocks;
    auto best = blocks.end();
    for (auto it = blocks.begin(); it != blocks.end(); ++it) {
        const bool fits = it->size >= size && it->size - size <= size / 4;
        if (fits && (best == blocks.end() || it->size <= best->size)) best = it;
    }
    if (best != blocks.end()) return kept().remove(best);
    try {
        return map(size);
    } catch (const std::bad_alloc&) {
        kept().shrink_to(0);
        return map(size);
    }
}

void give_memory(Memory memory) noexcept {
    const std::lock_guard<std::mutex> lock(kept().mutex);
    if (memory.size > kept().limit) return unmap(memory);
#ifdef MADV_FREE
    if (madvise(memory.address, memory.size, MADV_FREE) != 0) return unmap(memory);
#else
    return unmap(memory);
#endif
    try {
        kept().blocks.push_back(memory);
    } catch (const std::bad_alloc&) {
        return unmap(memory);
    }
    kept().size += memory.size;
    kept().shrink_to(kept().limit);
}

std::size_t kept_memory() {
    std::lock_guard<std::mutex> lock(kept().mutex);
    return kept().size;
}

std::size_t kept_memory_limit() {
    std::lock_guard<std::mutex> lock(kept().mutex);
    return kept().limit;
}

void limit_kept_memory(std::size_t size) {
    std::lock_guard<std::mutex> lock(kept().mutex);
    kept().limit = size;
    kept().shrink_to(kept().limit);
}

}  // namespace online_softmax
