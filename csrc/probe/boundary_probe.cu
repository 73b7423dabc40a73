// From the end of a launch in a graph to the begin of the next, with and without programmatic launch.
#include "probe/clocks.cuh"
#include "probe/device_probe.h"
#include "probe/graph_timer.h"
#include "probe/launch.cuh"

namespace musetrace::probe {
namespace {

constexpr std::uint32_t kThreads = 384;
constexpr std::uint64_t kSpinNs = 5000;

struct BlockTimes {
    std::uint64_t begin_ns;
    std::uint64_t past_wait_ns;
    std::uint64_t end_ns;
};

template <bool kTrigger>
__global__ void __launch_bounds__(kThreads) spin_for_a_while(BlockTimes* times) {
    const std::uint64_t begin_ns = stamp_clock_ns();
    if constexpr (kTrigger) {
        let_next_launch_begin();
        wait_for_launch_before();
    }
    const std::uint64_t past_wait_ns = stamp_clock_ns();
    spin_until(past_wait_ns + kSpinNs);
    if (threadIdx.x == 0) times[blockIdx.x] = {begin_ns, past_wait_ns, stamp_clock_ns()};
}

__global__ void do_nothing() {}

}  // namespace

Counts measure_boundaries(Boundary boundary, std::uint32_t shared_bytes, std::uint32_t launches,
                          std::uint32_t replays) {
    require(launches >= 1 && launches <= 1000 && replays >= 1 && replays <= 100,
            "choose 1 to 1000 launches and 1 to 100 replays");
    const LaunchShape shape{num_sms(), kThreads, shared_bytes, boundary != Boundary::kPlain};
    const auto kernel = boundary == Boundary::kEarlyTrigger ? spin_for_a_while<true> : spin_for_a_while<false>;
    const DeviceBuffer<BlockTimes> times(std::size_t{launches} * shape.blocks);
    prepare(kernel, shape);
    GraphTimer timer;
    timer.add(launches, [&](std::uint32_t i, cudaStream_t stream) {
        launch(kernel, shape, stream, times.get() + std::size_t{i} * shape.blocks);
    });
    Counts all{{replays, launches, shape.blocks, 3}, {}};
    timer.run_us(0);  // the warm-up
    for (std::uint32_t replay = 0; replay < replays; ++replay) {
        timer.run_us(0);
        const std::vector<std::uint64_t> words = words_of(times);
        all.values.insert(all.values.end(), words.begin(), words.end());
    }
    return all;
}

Times measure_empty_launches(std::uint32_t launches, std::uint32_t rounds) {
    require(launches >= 1 && launches <= 10'000 && rounds >= 1 && rounds <= 1000,
            "choose 1 to 10000 launches and 1 to 1000 rounds");
    prepare(do_nothing, {1, abi::kLanesPerWarp});
    GraphTimer timer;
    for (const bool programmatic : {false, true}) {
        timer.add(launches, [&](std::uint32_t, cudaStream_t stream) {
            launch(do_nothing, {1, abi::kLanesPerWarp, 0, programmatic}, stream);
        });
    }
    return per_launch(timer.interleaved_us(rounds), launches);
}

}  // namespace musetrace::probe
