// Straight-line code of a known size, again and again: what fits into an SM's instruction cache, and what code costs
// that does not.
#include <utility>

#include "probe/clocks.cuh"
#include "probe/device_probe.h"
#include "probe/random_words.h"
#include "probe/stream_once.cuh"

namespace musetrace::probe {
namespace {

constexpr std::uint32_t kChains = 8;

// 64 instructions of 16 bytes. Eight chains, so that a warp can issue one every cycle.
__device__ __forceinline__ void one_kib(float (&x)[kChains]) {
#define MUSETRACE_STEP(chain) "fma.rn.f32 %" #chain ", %" #chain ", 0f3F7FFFF0, 0f3A000000;\n\t"
#define MUSETRACE_STEPS \
    MUSETRACE_STEP(0)   \
    MUSETRACE_STEP(1)   \
    MUSETRACE_STEP(2) MUSETRACE_STEP(3) MUSETRACE_STEP(4) MUSETRACE_STEP(5) MUSETRACE_STEP(6) MUSETRACE_STEP(7)
    asm volatile(MUSETRACE_STEPS MUSETRACE_STEPS MUSETRACE_STEPS MUSETRACE_STEPS MUSETRACE_STEPS MUSETRACE_STEPS
                     MUSETRACE_STEPS MUSETRACE_STEPS
                 : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]), "+f"(x[7]));
#undef MUSETRACE_STEPS
#undef MUSETRACE_STEP
}

template <std::uint32_t kKib>
__device__ __forceinline__ std::uint64_t body_cycles(float (&x)[kChains]) {
    if constexpr (kKib == 0) {
        return 0;
    } else {
        const std::uint64_t begin = cycles_now();
#pragma unroll
        for (std::uint32_t i = 0; i < kKib; ++i) one_kib(x);
        return cycles_now() - begin;
    }
}

template <std::uint32_t kFirstKib, std::uint32_t kSecondKib>
__global__ void run_bodies(std::uint64_t* cycles, std::uint32_t passes, ClockPair* clocks, float* sink) {
    float x[kChains];
#pragma unroll
    for (std::uint32_t i = 0; i < kChains; ++i) x[i] = static_cast<float>(threadIdx.x + i);
    const ClockPair begin = both_clocks();
#pragma unroll 1
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
        __syncthreads();
        const std::uint64_t first = body_cycles<kFirstKib>(x);
        const std::uint64_t second = body_cycles<kSecondKib>(x);
        if (threadIdx.x == 0) {
            std::uint64_t* const to = cycles + 2 * (std::size_t{blockIdx.x} * passes + pass);
            to[0] = first;
            to[1] = second;
        }
    }
    const ClockPair end = both_clocks();
    if (threadIdx.x == 0) {
        clocks[2 * blockIdx.x] = begin;
        clocks[2 * blockIdx.x + 1] = end;
    }
    float sum = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kChains; ++i) sum += x[i];
    if (sum == 0.5f) *sink = sum;  // never, but the compiler cannot know
}

using BodyKernel = void (*)(std::uint64_t*, std::uint32_t, ClockPair*, float*);

template <std::size_t... kIndices>
BodyKernel kernel_of(std::size_t body, std::index_sequence<kIndices...>) {
    static constexpr BodyKernel kKernels[] = {run_bodies<kBodies[kIndices].first, kBodies[kIndices].second>...};
    return kKernels[body];
}

}  // namespace

Cycles measure_bodies(std::uint32_t body, std::uint32_t warps, std::uint32_t passes, std::uint32_t launches) {
    constexpr std::size_t kOtherBytes = std::size_t{512} << 20;
    require(body < std::size(kBodies) && warps >= 1 && warps <= 32, "choose one of the bodies, and 1 to 32 warps");
    require(passes >= 1 && passes <= 1000 && launches >= 1 && launches <= 100,
            "choose 1 to 1000 passes and 1 to 100 launches");
    const std::uint32_t blocks = num_sms();
    const DeviceBuffer<char> other(kOtherBytes);
    fill_random(other.get(), other.count());
    const DeviceBuffer<std::uint64_t> cycles(std::size_t{blocks} * passes * 2);
    const DeviceBuffer<ClockPair> clocks(std::size_t{blocks} * 2);
    const DeviceBuffer<float> sink(1);
    const Report report;
    const LaunchShape fill{blocks, abi::kLanesPerWarp, sizeof(PieceRing)};
    prepare(stream_once, fill);
    const BodyKernel kernel = kernel_of(body, std::make_index_sequence<std::size(kBodies)>{});
    const LaunchShape shape{blocks, warps * abi::kLanesPerWarp};
    prepare(kernel, shape);
    Cycles all{{{launches, blocks, passes, 2}, {}}, {{launches, blocks, 2, 2}, {}}};
    for (std::uint32_t i = 0; i < launches; ++i) {
        launch(stream_once, fill, nullptr, other.get(), other.count() / kPieceBytes, kMostPieces, report.get());
        launch(kernel, shape, nullptr, cycles.get(), passes, clocks.get(), sink.get());
        report.check_all();
        const std::vector<std::uint64_t> of_launch = cycles.to_host(), clock_words = words_of(clocks);
        all.cycles.values.insert(all.cycles.values.end(), of_launch.begin(), of_launch.end());
        all.clocks.values.insert(all.clocks.values.end(), clock_words.begin(), clock_words.end());
    }
    return all;
}

}  // namespace musetrace::probe
