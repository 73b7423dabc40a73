// The clock of all stamps, and what differs between the GPU and the host device, where a warp is a thread.
#pragma once

#include "musetrace/abi/stamp.h"

#if defined(__CUDACC__)
#define MUSETRACE_FN __device__ __forceinline__
#else
#include <time.h>
#define MUSETRACE_FN inline
#endif

namespace musetrace {

// %globaltimer on the GPU, CLOCK_MONOTONIC on the host device. Nanoseconds.
MUSETRACE_FN std::uint64_t stamp_clock_ns() {
#if defined(__CUDA_ARCH__)
    std::uint64_t now;
    // The memory clobber keeps the read between the work before it and the work after it.
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
#elif defined(__CUDACC__)
    return 0;
#else
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ull + static_cast<std::uint64_t>(now.tv_nsec);
#endif
}

// The low half of a time, as a slot of 4 bytes keeps it: 0 means "not written", so the one time in 2^32 whose low half
// is 0 is kept 1 ns late.
MUSETRACE_FN std::uint32_t low_half(std::uint64_t time_ns) {
    const std::uint32_t low = static_cast<std::uint32_t>(time_ns);
    return low == 0 ? 1u : low;
}

namespace detail {

// The clock as a slot of 8 or 4 bytes keeps it.
template <class Slot>
MUSETRACE_FN Slot clock_for() {
    if constexpr (sizeof(Slot) == 8) return stamp_clock_ns();
    return low_half(stamp_clock_ns());
}

MUSETRACE_FN std::uint32_t lane_id() {
#if defined(__CUDA_ARCH__)
    std::uint32_t lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
#else
    return 0;
#endif
}

MUSETRACE_FN std::uint32_t sm_id() {
#if defined(__CUDA_ARCH__)
    std::uint32_t sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
#else
    return 0;
#endif
}

MUSETRACE_FN void add(std::uint32_t* counter, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    atomicAdd(counter, value);
#elif !defined(__CUDACC__)
    __atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
#endif
}

}  // namespace detail
}  // namespace musetrace
