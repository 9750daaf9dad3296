// The few PTX instructions behind loads that say how they are cached, asynchronous copies, mbarriers and thread-block clusters.
#pragma once
#include "numbers.cuh"

namespace online_softmax {

__device__ __forceinline__ uint32 shared_address(const void* pointer) {
    return uint32(__cvta_generic_to_shared(pointer));
}

// How the second-level cache treats what a launch reads once, `bytes` of it, while it writes results.  Of far more than the
// cache holds it is to keep what was read rather than what is written: results then leave for memory as they come, and all
// is 1 to 4 % faster (DESIGN.md).  Every thread has the same policy, so it takes none of their registers.
__device__ __forceinline__ uint64 policy_of_reading(int64 bytes) {
    uint64 as_any, longest;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(as_any));
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(longest));
    return __CUDA_ARCH__ >= 900 && bytes > 64 << 20 ? longest : as_any;
}

// Instead of a policy.  It is not the same as one that keeps nothing longer than anything else: with that logsumexp, which only
// reads, takes 3 to 6 % longer.
struct NoPolicy {};

// Sixteen bytes from global memory.
__device__ __forceinline__ uint4 load(const void* from, NoPolicy) {
    uint4 word;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "l"(from));
    return word;
}
__device__ __forceinline__ uint4 load(const void* from, uint64 policy) {
    uint4 word;
    asm volatile("ld.global.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "l"(from), "l"(policy));
    return word;
}

// 16 bytes from global to shared memory, in flight while the thread goes on.
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
// The same of a word whose first `bytes` alone may be read; the rest of it becomes 0.
__device__ __forceinline__ void copy_async(void* shared, const void* global, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {  // until at most PENDING of this thread's groups are in flight
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// A kernel that was launched early (launch.py) waits here until the launch before it has ended and all it wrote can be
// seen.  Every thread calls it before it reads what that launch wrote and before it writes anything itself.
__device__ __forceinline__ void wait_for_previous_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next launch may begin, if it was launched early, once every block has come here.
__device__ __forceinline__ void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void barrier_init(uint64* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_visible_to_cluster() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(uint64* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64* barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ int cluster_rank() {
    uint32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));  // volatile: read again rather than kept in a register
    return int(rank);
}
// Relaxed: barrier_init_visible_to_cluster() has published all there is to publish, and a releasing arrival would wait for
// every copy in flight.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The address of the same shared variable in block `rank` of the cluster.
__device__ __forceinline__ uint32 address_in_block(uint32 shared, int rank) {
    uint32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
    return remote;
}
// Eight bytes to another block; its mbarrier counts them when they have arrived.
__device__ __forceinline__ void send_async(uint32 address, uint64 value, uint32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(address), "l"(value),
                 "r"(barrier)
                 : "memory");
}

}  // namespace online_softmax
