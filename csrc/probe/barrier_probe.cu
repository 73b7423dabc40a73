// A barrier over one block on each SM.
#include "probe/clocks.cuh"
#include "probe/device_probe.h"
#include "probe/launch.cuh"
#include "sync/gpu_arch.cuh"

namespace musetrace::probe {
namespace {

constexpr std::uint32_t kMostRounds = 1024;
// More than half of an SM's shared memory, so that no SM gets two blocks.
constexpr std::size_t kSharedBytes = 120 * 1024;

__global__ void __launch_bounds__(abi::kLanesPerWarp, 1)
    barrier_again(std::uint32_t* arrived, std::uint32_t rounds, std::uint64_t* cycles, ClockPair* clocks,
                  abi::WaitReport* report) {
    __shared__ sync::Waiter waiter;
    __shared__ std::uint64_t samples[kMostRounds];  // a release would wait for their way to memory
    if (threadIdx.x == 0) waiter = waiter_of(report);
    __syncwarp();
    const ClockPair begin = both_clocks();
#pragma unroll 1
    for (std::uint32_t round = 0; round < rounds; ++round) {
        const std::uint64_t start = cycles_now();
        if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        __syncwarp();
        const auto poll = [&] {
            std::uint32_t count;
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(arrived) : "memory");
            return std::uint64_t{count};
        };
        sync::wait<sync::GpuArch, 1, 1024>(waiter, kBlocksArrive, std::uint64_t{gridDim.x} * (round + 1), poll,
                                           [](std::uint32_t) {});
        if (threadIdx.x == 0) samples[round] = cycles_now() - start;
        __syncwarp();
    }
    const ClockPair end = both_clocks();
    for (std::uint32_t i = threadIdx.x; i < rounds; i += abi::kLanesPerWarp) {
        cycles[blockIdx.x * rounds + i] = samples[i];
    }
    if (threadIdx.x == 0) {
        clocks[2 * blockIdx.x] = begin;
        clocks[2 * blockIdx.x + 1] = end;
    }
}

}  // namespace

Cycles measure_barriers(std::uint32_t rounds) {
    require(rounds >= 1 && rounds <= kMostRounds, "choose 1 to 1024 rounds");
    const LaunchShape shape{num_sms(), abi::kLanesPerWarp, kSharedBytes};
    const DeviceBuffer<std::uint32_t> arrived(1);
    const DeviceBuffer<std::uint64_t> cycles(std::size_t{shape.blocks} * rounds);
    const DeviceBuffer<ClockPair> clocks(std::size_t{shape.blocks} * 2);
    const Report report;
    prepare(barrier_again, shape);
    launch(barrier_again, shape, nullptr, arrived.get(), rounds, cycles.get(), clocks.get(), report.get());
    report.check_all();
    return {{{shape.blocks, rounds}, cycles.to_host()}, {{shape.blocks, 2, 2}, words_of(clocks)}};
}

}  // namespace musetrace::probe
