// The GPU: what a wait, a barrier or a ring needs from the hardware. All inline assembly of the waits stands here.
//
// A warp waits as one: its lanes look each by itself, and all of them go on or none. If one lane left a wait that
// another passes, the next matrix instruction would lack a lane, which is an illegal instruction.
#pragma once

#include <cstdint>

#include "musetrace/stamp.cuh"
#include "sync/wait.h"

namespace musetrace::sync {

inline constexpr std::uint32_t kAllLanes = 0xFFFFFFFF;

__device__ __forceinline__ std::uint32_t lane_id() { return threadIdx.x % abi::kLanesPerWarp; }

struct GpuArch {
    // System scope costs no more than the GPU's own on an H200 (280 ns a hop).
    static __device__ __forceinline__ std::uint32_t load_relaxed(const std::uint32_t* address) {
        std::uint32_t value;
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
        return value;
    }
    static __device__ __forceinline__ void store_relaxed(std::uint32_t* address, std::uint32_t value) {
        asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
    }
    static __device__ __forceinline__ std::uint64_t now_ns() { return stamp_clock_ns(); }

    static __device__ __forceinline__ bool all(bool mine) { return __all_sync(kAllLanes, mine) != 0; }

    static __device__ __forceinline__ void pause(std::uint32_t) { __nanosleep(kPauseNs); }

    // Of a wait for another block. A load of the abort flag takes as long as a hop, so most polls go without.
    static constexpr std::uint32_t kPollsPerLook = 16;

    // The warp. In ticks of 1,024 ns: 32 bits of them last for an hour. The report says 1 and 0 for what was waited
    // for.
    static __device__ __forceinline__ std::uint32_t look(const Waiter& waiter, std::uint32_t site,
                                                         std::uint32_t patience, std::uint64_t, std::uint64_t,
                                                         std::uint32_t start) {
        return look_at(static_cast<std::uint32_t>(__cvta_generic_to_shared(&waiter)), site << 8 | patience, start);
    }

    // The warps of a group, all threads from kGroupFirst on, meet at a hardware barrier.
    static constexpr std::uint32_t kGroupFirst = 128, kGroupThreads = 256;
    static __device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(kGroupThreads) : "memory"); }

  private:
    static __device__ __forceinline__ std::uint32_t ticks() { return static_cast<std::uint32_t>(now_ns() >> 10); }

    // Not inlined: it stands behind every wait, and what waits need of the instruction cache is theirs. It is sparing
    // with registers, for they must be free wherever a warp waits.
    static __device__ __noinline__ std::uint32_t look_at(std::uint32_t waiter_address, std::uint32_t what,
                                                         std::uint32_t start) {
        const std::uint32_t waited = ticks() - start;
        if (start == 0) return waited;
        const Waiter& waiter = *static_cast<const Waiter*>(__cvta_shared_to_generic(waiter_address));
        const auto budget = static_cast<std::uint32_t>(waiter.budget_ns >> 10);
        const bool over = waited > longest_wait(budget, what & 0xFF, what >> 8);
        if (__any_sync(kAllLanes, load_relaxed(waiter.abort) != 0 || over)) leave(waiter, what >> 8, waited);
        return start;
    }

    // Ends the warp: the report is that of the first lane of all that sets the abort flag. Before the end comes a while
    // in which bulk copies land that are under way, for they write to shared memory, which the next block on this SM
    // gets when this one is gone (a full ring of 144 KB lands in 5 us), and in which the other warps of a group are let
    // out of the barrier where they may wait for this one.
    [[noreturn]] static __device__ __forceinline__ void leave(const Waiter& waiter, std::uint32_t site,
                                                              std::uint32_t waited) {
        if (atomicCAS(waiter.abort, 0u, 1u) == 0) {
            abi::WaitReport& report = *waiter.report;
            report.site = site;
            report.rank = waiter.rank;
            report.block = waiter.block;
            report.warp = threadIdx.x / abi::kLanesPerWarp;
            report.want = 1;
            report.got = 0;
            report.waited_ns = std::uint64_t{waited} << 10;
            report.abort = 1;
            report.claimed = 1;
        }
        __syncwarp();
        const std::uint32_t left = ticks();
#pragma unroll 1
        while (ticks() - left < kLandingTicks) {
            if (threadIdx.x >= kGroupFirst) meet_without_waiting();
            __nanosleep(kPauseNs);
        }
        asm volatile("exit;");
        __builtin_unreachable();
    }
    static __device__ __forceinline__ void meet_without_waiting() {
        asm volatile("bar.arrive 1, %0;" ::"n"(kGroupThreads) : "memory");
    }
    static constexpr std::uint32_t kPauseNs = 32;  // one tick of %globaltimer
    static constexpr std::uint32_t kLandingTicks = 200;
};

// Arrivals that stand for a warp. compute-sanitizer's racecheck does not follow what lane 0's arrival says for the
// lanes that met it in __syncwarp(); built with MUSETRACE_EVERY_LANE_ARRIVES they all arrive, and it finds nothing.
#if defined(MUSETRACE_EVERY_LANE_ARRIVES)
inline constexpr std::uint32_t kArrivalsOfWarp = abi::kLanesPerWarp;
#else
inline constexpr std::uint32_t kArrivalsOfWarp = 1;
#endif

// The hardware's mbarrier, in shared memory.
class GpuBarrier {
  public:
    // One thread, before any use; then fence_init() by the same thread and __syncthreads().
    __device__ __forceinline__ void init(std::uint32_t arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
    }
    __device__ __forceinline__ void init_for_warps(std::uint32_t warps) { init(warps * kArrivalsOfWarp); }
    static __device__ __forceinline__ void fence_init() {
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    // One lane. What it did before is visible to whoever sees the phase end.
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
    }
    // The warp, as one of those of init_for_warps().
    __device__ __forceinline__ void arrive_as_warp(std::uint32_t lane) {
        __syncwarp();
        if (kArrivalsOfWarp != 1 || lane == 0) arrive();
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

    // The warp: waits for the end of the current phase of this parity (0 for the first).
    __device__ __forceinline__ void wait_parity(const Waiter& waiter, std::uint32_t site, std::uint32_t parity) {
        const auto poll = [&] { return std::uint64_t{try_wait(parity)}; };
        wait<GpuArch, kLocalPatience, 1>(waiter, site, 1, poll, [](std::uint32_t) {});
    }

    // The warp: whether it has ended, without waiting.
    __device__ __forceinline__ bool has_ended(std::uint32_t parity) const {
        std::uint32_t ended;
        asm volatile(
            "{ .reg .pred ended; mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;"
            " selp.u32 %0, 1, 0, ended; }"
            : "=r"(ended)
            : "r"(address()), "r"(parity)
            : "memory");
        return GpuArch::all(ended != 0);
    }

  private:
    // The hardware lets the warp sleep for about this long, so a wait that ends in time never loads the abort flag, and
    // one that does not looks at it often enough to see it before the first to leave is gone (kLandingTicks).
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
