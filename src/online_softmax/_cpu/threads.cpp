#include "threads.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

namespace online_softmax {
namespace {

constexpr int shares_a_thread = 2;  // of what is left

std::atomic<std::int64_t> jobs{0}, jobs_of_team{0};

// A task over [0, count), which any number of threads work on.
class Job {
public:
    Job(std::int64_t count, std::int64_t chunk, int threads, Task task, void* context)
        : task_(task), context_(context), count_(count), chunk_(chunk), shares_(shares_a_thread * threads) {
        jobs.fetch_add(1, std::memory_order_relaxed);
    }

    // Takes what is left in shares that shrink: long runs of lines at first, since two threads that first touch the same
    // huge page of a fresh output wait for one another; short ones at the end, so that a thread held up leaves its part
    // to the others.
    void work() noexcept {
        try {
            std::int64_t begin = next_.load(std::memory_order_relaxed);
            while (begin < count_) {
                const std::int64_t left = count_ - begin, share = left / shares_ > chunk_ ? left / shares_ : chunk_;
                const std::int64_t end = begin + (share < left ? share : left);
                if (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
                task_(context_, begin, end);
                begin = next_.load(std::memory_order_relaxed);
            }
        } catch (...) {
            std::lock_guard<std::mutex> lock(failure_mutex_);
            if (!failure_) failure_ = std::current_exception();
        }
    }

    // Once all have stopped working.
    void rethrow_failure() const {
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    const Task task_;
    void* const context_;
    const std::int64_t count_, chunk_, shares_;
    std::atomic<std::int64_t> next_{0};
    std::mutex failure_mutex_;
    std::exception_ptr failure_;
};

class Pool {
public:
    const pid_t process = getpid();

    void run(Job& job, int threads) {
        std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
        if (!turn.owns_lock()) return job.work();
        {
            std::lock_guard<std::mutex> lock(mutex_);
            start(threads - 1);
            job_ = &job;
            wanted_ = threads - 1 < started_ ? threads - 1 : started_;
            ++number_;
        }
        wake_.notify_all();
        job.work();
        std::unique_lock<std::mutex> lock(mutex_);
        wanted_ = 0;  // a worker that has not woken by now has nothing left to take
        if (working_ > 0) {
            lock.unlock();
            watch_for_the_end();
            lock.lock();
        }
        done_.wait(lock, [this] { return working_ == 0; });
    }

private:
    void start(int workers) {  // under mutex_
        for (; started_ < workers; ++started_) {
            try {
                std::thread([this] { serve(); }).detach();
            } catch (const std::exception&) {
                return;  // no more threads to be had: those that run do the work
            }
        }
    }

    void serve() {
        std::uint64_t seen = 0;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return wanted_ > 0 && number_ != seen; });
            seen = number_;
            --wanted_;
            ++working_;
            Job& job = *job_;
            lock.unlock();
            job.work();
            lock.lock();
            if (--working_ == 0) done_.notify_one();
        }
    }

    // The others' last chunks are short: waking up from a wait would take longer than they do.
    void watch_for_the_end() const {
        const auto begin = std::chrono::steady_clock::now();
        while (working_.load(std::memory_order_relaxed) > 0) {
            if (std::chrono::steady_clock::now() - begin > std::chrono::microseconds(50)) return;
        }
    }

    std::mutex turn_;  // held by the caller whose job the pool is doing
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    int started_ = 0, wanted_ = 0;
    std::atomic<int> working_{0};  // changed under mutex_
    std::uint64_t number_ = 0;     // of the job
    Job* job_ = nullptr;
};

std::atomic<Pool*> current{nullptr};

// After fork() the child has the pool's memory, perhaps with a lock held, but none of its threads: it makes its own
// and leaves the old one as it is.  Pools are never destroyed, since their threads wait in them until the process ends.
Pool& pool() {
    Pool* found = current.load(std::memory_order_acquire);
    if (found && found->process == getpid()) return *found;
    Pool* made = new Pool;
    if (current.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
    delete made;  // another thread was quicker; this one has no threads yet
    return *found;
}

std::atomic<Team> team{nullptr};
const pid_t process_of_import = getpid();

}  // namespace

std::int64_t shared_jobs() {
    return jobs.load(std::memory_order_relaxed);
}

std::int64_t team_jobs() {
    return jobs_of_team.load(std::memory_order_relaxed);
}

void use_team(Team given) {
    team.store(given, std::memory_order_release);
}

bool uses_team() {
    return team.load(std::memory_order_acquire) && process_of_import == getpid();
}

void parallel_for(std::int64_t count, std::int64_t chunk, int threads, bool large, Task task, void* context) {
    Job job(count, chunk, threads, task, context);
    if (large && uses_team()) {
        jobs_of_team.fetch_add(1, std::memory_order_relaxed);
        team.load(std::memory_order_acquire)([](void* data) { static_cast<Job*>(data)->work(); }, &job, threads, 0);
    } else {
        pool().run(job, threads);
    }
    job.rethrow_failure();
}

}  // namespace online_softmax
