// A round trip between two warps: the first fills a slot and waits for the answer in the slot behind it. Every slot is
// used once, a line each, so none has to be emptied.
#pragma once

#include <cstdint>

#include "probe/clocks.cuh"
#include "probe/launch.cuh"
#include "sync/gpu_slots.cuh"

namespace musetrace::probe {

inline constexpr std::size_t kSlotLine = 128;
inline constexpr std::uint32_t kMostRounds = 1024;

template <bool kLamport>
__device__ __forceinline__ void send_slot(char* slot) {
    if (sync::lane_id() == 0) {
        if constexpr (kLamport) {
            sync::send_slots(slot, uint4{1, 1, 1, 1});
        } else {
            asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(slot) : "memory");
        }
    }
    __syncwarp();
}

// The warp. Without the pause of the megakernel's waits: how long the way takes, not how long the nap.
template <bool kLamport>
__device__ __forceinline__ void await_slot(const sync::Waiter& waiter, const char* slot) {
    constexpr std::uint32_t kPollsPerLook = 1024;
    const auto poll = [&] {
        if constexpr (kLamport) {
            uint4 words;
            sync::load_slots(words, slot);
            // Each word is its own flag: 16 bytes may land in pieces.
            return std::uint64_t{words.x & words.y & words.z & words.w};
        } else {
            std::uint32_t word;
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(slot) : "memory");
            return std::uint64_t{word};
        }
    };
    sync::wait<sync::GpuArch, 1, kPollsPerLook>(waiter, kSlotFills, 1, poll, [](std::uint32_t) {});
}

// The warp. Cycles of each round trip, in shared memory.
template <bool kLamport>
__device__ __forceinline__ void send_and_await(const sync::Waiter& waiter, char* to, const char* from,
                                               std::uint32_t rounds, std::uint64_t* cycles) {
#pragma unroll 1
    for (std::uint32_t round = 0; round < rounds; ++round) {
        const std::size_t offset = 2 * kSlotLine * round;
        const std::uint64_t begin = cycles_now();
        send_slot<kLamport>(to + offset);
        await_slot<kLamport>(waiter, from + offset);
        if (sync::lane_id() == 0) cycles[round] = cycles_now() - begin;
        __syncwarp();
    }
}

template <bool kLamport>
__device__ __forceinline__ void await_and_send(const sync::Waiter& waiter, const char* from, char* to,
                                               std::uint32_t rounds) {
#pragma unroll 1
    for (std::uint32_t round = 0; round < rounds; ++round) {
        const std::size_t offset = 2 * kSlotLine * round;
        await_slot<kLamport>(waiter, from + offset);
        send_slot<kLamport>(to + offset);
    }
}

}  // namespace musetrace::probe
