// What a fence or a poll costs a warp while another warp of its SM, and all other SMs, load memory in bulk.
#include <utility>

#include "probe/background.h"
#include "probe/bulk_stream.cuh"
#include "probe/device_probe.h"

namespace musetrace::probe {
namespace {

enum Operation : std::uint32_t {
    kFenceGpu,
    kFenceAcqRelGpu,
    kFenceSys,
    kStoreFenceGpu,
    kPollRelaxed,
    kPollAcquireGpu,
    kPollAcquireSys,
    kNumOperations
};
static_assert(std::size(kMemoryOperations) == kNumOperations);

constexpr std::uint32_t kMostSamples = 512;
constexpr std::uint32_t kLineWords = 32;

struct OperationInput {
    std::uint32_t* words;  // [blocks][a line], the first of each 1
    std::uint32_t samples;
    std::uint64_t* cycles;  // [blocks][samples]
    ClockPair* clocks;      // [blocks][2]
    Background background;
    abi::WaitReport* report;
};

// Samples wait in shared memory: no fence has to wait for their store.
struct OperationShared {
    PieceRing ring;
    std::uint64_t cycles[kMostSamples];
};

// A poll that finds at once what it waits for, as a wait that comes late.
template <std::uint32_t kOperation>
__device__ __forceinline__ void poll(const sync::Waiter& waiter, const std::uint32_t* word) {
    const auto load = [&] {
        std::uint32_t value;
        if constexpr (kOperation == kPollRelaxed) {
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
        } else if constexpr (kOperation == kPollAcquireGpu) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
        } else {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
        }
        return std::uint64_t{value};
    };
    sync::wait<sync::GpuArch, 1, 1024>(waiter, kSlotFills, 1, load, [](std::uint32_t) {});
}

template <std::uint32_t kOperation>
__device__ __forceinline__ void operate(const sync::Waiter& waiter, std::uint32_t* word) {
    if constexpr (kOperation == kFenceGpu) {
        __threadfence();
    } else if constexpr (kOperation == kFenceAcqRelGpu) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    } else if constexpr (kOperation == kFenceSys) {
        __threadfence_system();
    } else if constexpr (kOperation == kStoreFenceGpu) {
        if (sync::lane_id() == 0) {
            asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(word), "r"(1) : "memory");
        }
        __threadfence();
    } else {
        poll<kOperation>(waiter, word);
    }
}

template <std::uint32_t kOperation>
__global__ void __launch_bounds__(kBackgroundThreads, 1) operate_again(const __grid_constant__ OperationInput input) {
    extern __shared__ __align__(128) char bytes[];
    OperationShared& shared = *reinterpret_cast<OperationShared*>(bytes);
    if (threadIdx.x == 0) shared.ring.init(input.report);
    __syncthreads();
    if (threadIdx.x >= abi::kLanesPerWarp) return stream_until_measured(shared.ring, input.background);
    spin_until(stamp_clock_ns() + kWarmUpNs);
    const ClockPair begin = both_clocks();
#pragma unroll 1
    for (std::uint32_t sample = 0; sample < input.samples; ++sample) {
        const std::uint64_t start = cycles_now();
        operate<kOperation>(shared.ring.waiter, input.words + blockIdx.x * kLineWords);
        if (threadIdx.x == 0) shared.cycles[sample] = cycles_now() - start;
        __syncwarp();
    }
    const ClockPair end = both_clocks();
    finished_measuring(input.background);
    for (std::uint32_t i = threadIdx.x; i < input.samples; i += abi::kLanesPerWarp) {
        input.cycles[blockIdx.x * input.samples + i] = shared.cycles[i];
    }
    if (threadIdx.x == 0) {
        input.clocks[2 * blockIdx.x] = begin;
        input.clocks[2 * blockIdx.x + 1] = end;
    }
}

using OperationKernel = void (*)(OperationInput);

template <std::uint32_t... kOperations>
OperationKernel kernel_of(std::uint32_t operation, std::integer_sequence<std::uint32_t, kOperations...>) {
    static constexpr OperationKernel kKernels[] = {operate_again<kOperations>...};
    return kKernels[operation];
}

}  // namespace

Cycles measure_operations(std::uint32_t operation, std::uint32_t in_flight, std::uint32_t samples) {
    require(operation < kNumOperations && samples >= 1 && samples <= kMostSamples, "choose 1 to 512 samples");
    const LaunchShape shape{num_sms(), kBackgroundThreads, sizeof(OperationShared)};
    const DeviceBuffer<std::uint32_t> words(shape.blocks * kLineWords);
    const std::vector<std::uint32_t> ones(words.count(), 1);
    write_bytes(words.get(), ones.data(), ones.size() * sizeof(std::uint32_t), "copying to the device");
    const DeviceBuffer<std::uint64_t> cycles(std::size_t{shape.blocks} * samples);
    const DeviceBuffer<ClockPair> clocks(std::size_t{shape.blocks} * 2);
    const BackgroundMemory background(in_flight, shape.blocks);
    const Report report;
    const OperationKernel kernel = kernel_of(operation, std::make_integer_sequence<std::uint32_t, kNumOperations>{});
    prepare(kernel, shape);
    launch(kernel, shape, nullptr,
           OperationInput{words.get(), samples, cycles.get(), clocks.get(), background.get(), report.get()});
    report.check_all();
    return {{{shape.blocks, samples}, cycles.to_host()}, {{shape.blocks, 2, 2}, words_of(clocks)}};
}

}  // namespace musetrace::probe
