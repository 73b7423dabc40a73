// The two clocks that an SM can read.
#pragma once

#include <cstdint>

#include "musetrace/stamp.cuh"

namespace musetrace::probe {

// Cycles of this SM.
__device__ __forceinline__ std::uint64_t cycles_now() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

// Both clocks at one moment, a few cycles apart. As two uint64 in what the probe gives to Python.
struct ClockPair {
    std::uint64_t ns;
    std::uint64_t cycles;
};

__device__ __forceinline__ ClockPair both_clocks() {
    const std::uint64_t ns = stamp_clock_ns();
    return {ns, cycles_now()};
}

// Waits until %globaltimer steps, so that its time is exact to a turn of the loop and not to a step only.
__device__ __forceinline__ ClockPair both_clocks_at_step() {
    const std::uint64_t before = stamp_clock_ns();
    std::uint64_t now;
#pragma unroll 1
    do {
        now = stamp_clock_ns();
    } while (now == before);
    return {now, cycles_now()};
}

__device__ __forceinline__ void spin_until(std::uint64_t ns) {
#pragma unroll 1
    while (stamp_clock_ns() < ns) {
    }
}

}  // namespace musetrace::probe
