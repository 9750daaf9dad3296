// One small pool of threads for all kernels.  What a task computes never depends on the thread that runs it.
#pragma once

#include <cstdint>

namespace online_softmax {

using Task = void (*)(void* context, std::int64_t begin, std::int64_t end);

// Runs task over [0, count) in chunks of `chunk` or more, on at most `threads` threads, the caller's among them.  Chunks
// are taken as threads come free.  A caller that finds the pool in use, by another thread or around it, works alone.
// `large` work may go to a team instead.
void parallel_for(std::int64_t count, std::int64_t chunk, int threads, bool large, Task task, void* context);

// GOMP_parallel of an OpenMP library that is loaded already: runs `body` on so many threads at once.
using Team = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);

// From now on do large work on the threads of that library instead of the pool's, in the process that loaded this module
// though not in one forked from it, where OpenMP would hang.  Its threads keep spinning for a while after each of their
// own jobs, on the very cores that the pool's threads want.  Smaller work stays in the pool: whoever asks a team must
// wait for all of it, even for a thread that other processes keep off its core.  Null: the pool for all work.
void use_team(Team team);
bool uses_team();

// How many times threads have been put to work in this process, and how many of these a team was.
std::int64_t shared_jobs();
std::int64_t team_jobs();

namespace {

constexpr std::int64_t elements_a_task = 1 << 15;    // less is done before another thread would have woken
constexpr std::int64_t elements_for_a_team = 1 << 22;

// Calls body(begin, end) for parts of [0, count).  `work` is the number of elements behind each index.
template <class Body>
inline __attribute__((always_inline)) void parallel(std::int64_t count, std::int64_t work, int threads, Body body) {
    const Task task = [](void* context, std::int64_t begin, std::int64_t end) {
        (*static_cast<Body*>(context))(begin, end);
    };
    work = work > 0 ? work : 1;
    const std::int64_t chunk = work < elements_a_task ? elements_a_task / work : 1;
    if (threads <= 1 || count <= chunk) {
        task(&body, 0, count);
    } else {
        parallel_for(count, chunk, threads, count * work >= elements_for_a_team, task, &body);
    }
}

}  // namespace
}  // namespace online_softmax
