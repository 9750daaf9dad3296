// Memory for large results.  Touching fresh memory takes the system longer than the kernels take to compute what goes
// there, so the memory of results that were freed is kept for the next ones.  It is marked as free (MADV_FREE): the
// system takes its pages back whenever it is short of memory.
#pragma once

#include <cstddef>

namespace online_softmax {

struct Memory {
    void* address;
    std::size_t size;  // at least what was asked for
};

// At least `size` bytes, from the start of a huge page on; what they hold is anything.  Throws std::bad_alloc.
Memory take_memory(std::size_t size);

// Keeps it for the next caller, or gives it back when enough is kept.
void give_memory(Memory memory) noexcept;

// How much is kept now.
std::size_t kept_memory();

// How much is kept at most: an eighth of the machine's memory unless set.  What is kept beyond it is given back.
std::size_t kept_memory_limit();
void limit_kept_memory(std::size_t size);

}  // namespace online_softmax
