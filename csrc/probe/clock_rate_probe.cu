// How fast an SM's cycles run by %globaltimer, idle and with busy tensor cores.
#include "probe/clocks.cuh"
#include "probe/device_probe.h"
#include "probe/launch.cuh"
#include "probe/tensor_load.cuh"

namespace musetrace::probe {
namespace {

constexpr std::uint32_t kThreads = 384;
constexpr std::uint64_t kLongestNs = 100'000'000;

template <bool kLoad>
__global__ void __launch_bounds__(kThreads, 1)
    clock_pairs(ClockPair* pairs, std::uint32_t count, std::uint32_t interval_ns, float* sink) {
    __shared__ std::uint32_t stop;
    if (threadIdx.x == 0) stop = 0;
    __syncthreads();
    const std::uint64_t begin_ns = stamp_clock_ns();
    if (threadIdx.x >= abi::kLanesPerWarp) {
        if constexpr (kLoad) multiply_until(stop, begin_ns + 2ull * count * interval_ns, sink);
        return;
    }
#pragma unroll 1
    for (std::uint32_t i = 0; i < count; ++i) {
        spin_until(begin_ns + std::uint64_t{i} * interval_ns);
        const ClockPair pair = both_clocks_at_step();
        if (threadIdx.x == 0) pairs[blockIdx.x * count + i] = pair;
    }
    *const_cast<volatile std::uint32_t*>(&stop) = 1;
}

}  // namespace

Counts measure_clock_pairs(bool tensor_load, std::uint32_t count, std::uint32_t interval_ns) {
    require(count >= 2 && interval_ns >= 1 && std::uint64_t{count} * interval_ns <= kLongestNs,
            "choose 2 readings and more, and 100 ms at most for all of them");
    const std::uint32_t blocks = num_sms();
    const DeviceBuffer<ClockPair> pairs(std::size_t{blocks} * count);
    const DeviceBuffer<float> sink(1);
    const Report report;
    const auto kernel = tensor_load ? clock_pairs<true> : clock_pairs<false>;
    launch(kernel, {blocks, kThreads}, nullptr, pairs.get(), count, interval_ns, sink.get());
    report.check_all();
    return {{blocks, count, 2}, words_of(pairs)};
}

}  // namespace musetrace::probe
