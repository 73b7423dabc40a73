// The GPU: what a wait, a barrier or a ring needs from the hardware. All inline assembly of the waits stands here.
//
// A warp waits as one. The members of GpuArch that decide something are called by its 32 lanes together and give all of
// them the same answer: if one lane left a wait that another passes, the next matrix instruction would lack a lane.
#pragma once

#include <cstdint>

#include "musetrace/stamp.cuh"
#include "sync/wait.h"

namespace musetrace::sync {

inline constexpr std::uint32_t kAllLanes = 0xFFFFFFFF;

__device__ __forceinline__ std::uint32_t lane_id() { return threadIdx.x % abi::kLanesPerWarp; }

struct GpuArch {
    // A lane by itself. System scope costs no more than the GPU's own on an H200 (280 ns a hop).
    static __device__ __forceinline__ std::uint32_t load_relaxed(const std::uint32_t* address) {
        std::uint32_t value;
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
        return value;
    }
    static __device__ __forceinline__ void store_relaxed(std::uint32_t* address, std::uint32_t value) {
        asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
    }
    // Only for leaving: it fences, which takes microseconds in a block that streams.
    static __device__ __forceinline__ void store_release(std::uint32_t* address, std::uint32_t value) {
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
    }

    // The warp.
    static __device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* address) {
        std::uint32_t value;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
        return __shfl_sync(kAllLanes, value, 0);
    }
    static __device__ __forceinline__ std::uint64_t now_ns() { return __shfl_sync(kAllLanes, stamp_clock_ns(), 0); }

    // True for one lane of the one warp that turns 0 into 1.
    static __device__ __forceinline__ bool claim(std::uint32_t* flag) {
        return lane_id() == 0 && atomicCAS_system(flag, 0u, 1u) == 0;
    }
    static __device__ __forceinline__ void pause(std::uint32_t) { __nanosleep(kPauseNs); }

    // Ends the warp, but not before the bulk copies have landed that are under way: they write to shared memory, which
    // the next block on this SM gets when this one is gone. A full ring of 144 KB lands in 5 us.
    [[noreturn]] static __device__ __forceinline__ void abandon() {
        const std::uint64_t start_ns = now_ns();
        while (now_ns() - start_ns < kLandingNs) __nanosleep(kPauseNs);
        asm volatile("exit;");
        __builtin_unreachable();
    }

  private:
    static constexpr std::uint32_t kPauseNs = 32;  // one tick of %globaltimer
    static constexpr std::uint64_t kLandingNs = 50'000;
};

// The hardware's mbarrier, in shared memory.
class GpuBarrier {
  public:
    // One thread, before any use; then fence_init() by the same thread and __syncthreads().
    __device__ __forceinline__ void init(std::uint32_t arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
    }
    static __device__ __forceinline__ void fence_init() {
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    // One lane. What it did before is visible to whoever sees the phase end.
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
    }
    // One lane: arrives, and keeps the phase open until `bytes` have landed.
    __device__ __forceinline__ void arrive_expecting(std::uint32_t bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
    }
    // One lane: `bytes` of global memory to shared memory, counted by this barrier. Addresses and size are multiples of
    // 16. Weights are read once, so they leave L2 first.
    __device__ __forceinline__ void copy(void* shared, const void* global, std::uint32_t bytes) {
        const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3],"
            " %4;" ::"r"(to),
            "l"(global), "r"(bytes), "r"(address()), "l"(kEvictFirst)
            : "memory");
    }

    // The warp: waits for the end of the current phase of this parity (0 for the first). Each lane looks by itself and
    // so sees what came before the end.
    __device__ __forceinline__ void wait_parity(const Waiter& waiter, std::uint32_t site, std::uint32_t parity) {
        const auto poll = [&] { return std::uint64_t{__all_sync(kAllLanes, try_wait(parity)) != 0}; };
        wait<GpuArch>(patient(waiter), site, 1, poll, [](std::uint32_t) {});
    }

  private:
    // The hardware lets the warp sleep for about this long, so a wait that ends in time never loads the abort flag.
    static constexpr std::uint32_t kSleepNs = 20'000;
    // L2 eviction policy, as CUTLASS encodes it (createpolicy.fractional.L2::evict_first of everything).
    static constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;

    __device__ __forceinline__ std::uint32_t address() const {
        return static_cast<std::uint32_t>(__cvta_generic_to_shared(&word_));
    }
    __device__ __forceinline__ bool try_wait(std::uint32_t parity) const {
        std::uint32_t ended;
        asm volatile(
            "{ .reg .pred ended; mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2, %3;"
            " selp.u32 %0, 1, 0, ended; }"
            : "=r"(ended)
            : "r"(address()), "r"(parity), "r"(kSleepNs)
            : "memory");
        return ended != 0;
    }

    std::uint64_t word_;
};

// How many registers the threads of a warpgroup have from here on: called by all of its 128 threads.
template <std::uint32_t kRegisters>
__device__ __forceinline__ void give_registers_back() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <std::uint32_t kRegisters>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace musetrace::sync
