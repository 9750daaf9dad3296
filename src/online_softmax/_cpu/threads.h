// One small pool of threads for all kernels.  What a task computes never depends on the thread that runs it.
#pragma once

#include <cstdint>

namespace online_softmax {

using Task = void (*)(void* context, std::int64_t begin, std::int64_t end);

// Runs task over [0, count) in chunks of `chunk` or more, on at most `threads` threads, the caller's among them.  Chunks
// are taken as threads come free.  A caller that finds the pool in use, by another thread or around it, works alone.
void parallel_for(std::int64_t count, std::int64_t chunk, int threads, Task task, void* context);

// GOMP_parallel of an OpenMP library that is loaded already: runs `body` on so many threads at once.
using Team = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);

// From now on work on the threads of that library instead of the pool's, in this process though not in one forked from
// it, where OpenMP would hang.  Its threads keep spinning for a while after each of their own jobs, on the very cores
// that a second pool would want.  Null: the pool again.
void use_team(Team team);
bool uses_team();

// How many times threads have been put to work in this process.
std::int64_t shared_jobs();

namespace {

template <class Body>
inline __attribute__((always_inline)) void parallel(std::int64_t count, std::int64_t chunk, int threads, Body body) {
    const Task task = [](void* context, std::int64_t begin, std::int64_t end) {
        (*static_cast<Body*>(context))(begin, end);
    };
    if (threads <= 1 || count <= chunk) {
        task(&body, 0, count);
    } else {
        parallel_for(count, chunk, threads, task, &body);
    }
}

}  // namespace
}  // namespace online_softmax
