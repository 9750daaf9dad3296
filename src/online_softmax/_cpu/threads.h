// One small pool of threads for all kernels.  What a task computes never depends on the thread that runs it.
#pragma once

#include <cstdint>

namespace online_softmax {

using Task = void (*)(void* context, std::int64_t begin, std::int64_t end);

// Runs task over [0, count) in chunks of `chunk` or more, on at most `threads` threads, the caller's among them.  Chunks
// are taken as threads come free.  A caller that finds the pool in use, by another thread or around it, works alone.
void parallel_for(std::int64_t count, std::int64_t chunk, int threads, Task task, void* context);

// How many times the pool has been put to work in this process.
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
