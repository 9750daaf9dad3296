#include "instruction_sets.h"

#include <atomic>
#include <cstring>

namespace online_softmax {

const Kernels* const* available_kernels() {
    static const Kernels* found[4] = {};
    static const bool done = [] {
        int n = 0;
#if defined(ONLINE_SOFTMAX_X86_64)
        __builtin_cpu_init();
        // What x86-64-v3 adds beyond these three is in every processor that has them.
        const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
        const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl");
        if (avx512) found[n++] = &avx512_kernels;
        if (avx2) found[n++] = &avx2_kernels;
#endif
        found[n++] = &baseline_kernels;
        return true;
    }();
    (void)done;
    return found;
}

namespace {

std::atomic<const Kernels*>& chosen() {
    static std::atomic<const Kernels*> kernels{available_kernels()[0]};
    return kernels;
}

}  // namespace

const Kernels& kernels() {
    return *chosen().load(std::memory_order_relaxed);
}

bool use_kernels(const char* name) {
    for (const Kernels* const* k = available_kernels(); *k; ++k) {
        if (std::strcmp((*k)->name, name) == 0) {
            chosen().store(*k);
            return true;
        }
    }
    return false;
}

}  // namespace online_softmax
