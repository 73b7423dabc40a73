// How long a word takes from one SM to another.
#include "probe/background.h"
#include "probe/bulk_stream.cuh"
#include "probe/device_probe.h"
#include "probe/hop.cuh"

namespace musetrace::probe {
namespace {

struct HopInput {
    char* slots;  // [pairs][rounds][2], a line each
    std::uint32_t pairs;
    std::uint32_t rounds;
    std::uint64_t* cycles;  // [pairs][rounds]
    ClockPair* clocks;      // [pairs][2]
    Background background;
    abi::WaitReport* report;
};

struct HopShared {
    PieceRing ring;
    std::uint64_t cycles[kMostRounds];
};

// Blocks i and i + half the grid are a pair.
template <bool kLamport>
__global__ void __launch_bounds__(kBackgroundThreads, 1) hop_between_sms(const __grid_constant__ HopInput input) {
    extern __shared__ __align__(128) char bytes[];
    HopShared& shared = *reinterpret_cast<HopShared*>(bytes);
    if (threadIdx.x == 0) shared.ring.init(input.report);
    __syncthreads();
    if (threadIdx.x >= abi::kLanesPerWarp) return stream_until_measured(shared.ring, input.background);
    const std::uint32_t half = gridDim.x / 2, pair = blockIdx.x % half;
    if (pair >= input.pairs || blockIdx.x >= 2 * half) return;
    char* const slots = input.slots + std::size_t{pair} * input.rounds * 2 * kSlotLine;
    spin_until(stamp_clock_ns() + kWarmUpNs);
    const ClockPair begin = both_clocks();
    if (blockIdx.x < half) {
        send_and_await<kLamport>(shared.ring.waiter, slots, slots + kSlotLine, input.rounds, shared.cycles);
    } else {
        await_and_send<kLamport>(shared.ring.waiter, slots, slots + kSlotLine, input.rounds);
    }
    const ClockPair end = both_clocks();
    finished_measuring(input.background);
    if (blockIdx.x >= half) return;
    for (std::uint32_t i = threadIdx.x; i < input.rounds; i += abi::kLanesPerWarp) {
        input.cycles[pair * input.rounds + i] = shared.cycles[i];
    }
    if (threadIdx.x == 0) {
        input.clocks[2 * pair] = begin;
        input.clocks[2 * pair + 1] = end;
    }
}

}  // namespace

Cycles measure_hops(bool lamport, std::uint32_t in_flight, std::uint32_t pairs, std::uint32_t rounds) {
    const LaunchShape shape{num_sms(), kBackgroundThreads, sizeof(HopShared)};
    require(pairs >= 1 && pairs <= shape.blocks / 2 && rounds >= 1 && rounds <= kMostRounds,
            "choose 1 to half as many pairs as SMs, and 1 to 1024 rounds");
    const DeviceBuffer<char> slots(std::size_t{pairs} * rounds * 2 * kSlotLine);
    const DeviceBuffer<std::uint64_t> cycles(std::size_t{pairs} * rounds);
    const DeviceBuffer<ClockPair> clocks(std::size_t{pairs} * 2);
    const BackgroundMemory background(in_flight, 2 * pairs);
    const Report report;
    const auto kernel = lamport ? hop_between_sms<true> : hop_between_sms<false>;
    prepare(kernel, shape);
    launch(kernel, shape, nullptr,
           HopInput{slots.get(), pairs, rounds, cycles.get(), clocks.get(), background.get(), report.get()});
    report.check_all();
    return {{{pairs, rounds}, cycles.to_host()}, {{pairs, 2, 2}, words_of(clocks)}};
}

}  // namespace musetrace::probe
