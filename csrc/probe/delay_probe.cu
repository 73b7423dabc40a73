// Known delays between two reads of both clocks: which clock gives them back better?
#include "probe/clocks.cuh"
#include "probe/device_probe.h"
#include "probe/launch.cuh"
#include "probe/tensor_load.cuh"

namespace musetrace::probe {
namespace {

constexpr std::uint32_t kThreads = 384;
constexpr std::uint32_t kMostDelays = 8;
constexpr std::uint64_t kTurnNs = 50;  // about 40 at 2 GHz
// Far longer than a launch; ends the busy warps should the measuring one not.
constexpr std::uint64_t kLongestNs = 100'000'000;

struct DelayStamp {
    ClockPair begin;
    ClockPair end;
    std::uint64_t passed_ns;  // of the spin; the loop does not look at a clock
};

struct DelayInput {
    std::uint32_t delays;
    std::uint32_t delay_ns[kMostDelays];
    std::uint32_t turns[kMostDelays];
    std::uint32_t repeats;
    std::uint32_t calibration;
    DelayStamp* stamps;       // [blocks][spin, loop][delays][repeats]
    std::uint64_t* loops_ns;  // [blocks][before, after][delays]
    ClockPair* anchors;       // [blocks][begin, end]
    float* sink;
};

// Each instruction needs the result of the one before it.
__device__ __forceinline__ std::uint32_t turn(std::uint32_t value, std::uint32_t turns) {
#pragma unroll 1
    for (std::uint32_t i = 0; i < turns; ++i) {
#pragma unroll
        for (std::uint32_t step = 0; step < 16; ++step) {
            asm volatile("mad.lo.u32 %0, %0, %0, 12345;" : "+r"(value));
        }
    }
    return value;
}

// From a step of %globaltimer on, so that how long it takes is known to a turn of the loop.
__device__ __forceinline__ DelayStamp spin(std::uint32_t delay_ns) {
    DelayStamp stamp;
    const std::uint64_t first = both_clocks_at_step().ns;
    stamp.begin = both_clocks();
    std::uint64_t now;
#pragma unroll 1
    do {
        now = stamp_clock_ns();
    } while (now - first < delay_ns);
    stamp.end = both_clocks();
    stamp.passed_ns = now - first;
    return stamp;
}

__device__ __forceinline__ DelayStamp loop(std::uint32_t turns, std::uint32_t& value) {
    DelayStamp stamp;
    stamp.begin = both_clocks();
    value = turn(value, turns);
    stamp.end = both_clocks();
    stamp.passed_ns = 0;
    return stamp;
}

// Up to some 300 ns, no two alike in a row: a loop begins at any moment between two steps of %globaltimer, as jobs do.
__device__ __forceinline__ void wander(std::uint32_t seed, std::uint32_t& value) {
    const std::uint32_t steps = seed * 0x9E3779B9u >> 26;
#pragma unroll 1
    for (std::uint32_t i = 0; i < steps; ++i) asm volatile("mad.lo.u32 %0, %0, %0, 12345;" : "+r"(value));
}

__device__ __forceinline__ void time_loops(const DelayInput& input, std::uint64_t* to, std::uint32_t& value) {
#pragma unroll 1
    for (std::uint32_t delay = 0; delay < input.delays; ++delay) {
        const std::uint64_t begin = both_clocks_at_step().ns;
        value = turn(value, input.turns[delay] * input.calibration);
        const std::uint64_t end = stamp_clock_ns();
        if (threadIdx.x == 0) to[delay] = end - begin;
    }
}

__device__ __forceinline__ void stamp_delays(const DelayInput& input, std::uint32_t& value) {
    const std::uint32_t of_way = input.delays * input.repeats;
    DelayStamp* const spins = input.stamps + std::size_t{blockIdx.x} * 2 * of_way;
#pragma unroll 1
    for (std::uint32_t i = 0; i < of_way; ++i) {
        // All delays by turns: a clock that changes its speed hits them alike.
        const std::uint32_t delay = i % input.delays, repeat = i / input.delays;
        const std::uint32_t place = delay * input.repeats + repeat;
        const DelayStamp spun = spin(input.delay_ns[delay]);
        wander(i + blockIdx.x * of_way, value);
        const DelayStamp looped = loop(input.turns[delay], value);
        if (threadIdx.x == 0) {
            spins[place] = spun;
            spins[of_way + place] = looped;
        }
    }
}

template <bool kLoad>
__global__ void __launch_bounds__(kThreads, 1) stamp_known_delays(const __grid_constant__ DelayInput input) {
    __shared__ std::uint32_t stop;
    if (threadIdx.x == 0) stop = 0;
    __syncthreads();
    if (threadIdx.x >= abi::kLanesPerWarp) {
        if constexpr (kLoad) multiply_until(stop, stamp_clock_ns() + kLongestNs, input.sink);
        return;
    }
    ClockPair* const anchors = input.anchors + 2 * blockIdx.x;
    std::uint64_t* const loops_ns = input.loops_ns + std::size_t{blockIdx.x} * 2 * input.delays;
    const ClockPair first = both_clocks_at_step();
    std::uint32_t value = threadIdx.x;
    time_loops(input, loops_ns, value);
    stamp_delays(input, value);
    time_loops(input, loops_ns + input.delays, value);
    const ClockPair last = both_clocks_at_step();
    if (threadIdx.x == 0) {
        anchors[0] = first;
        anchors[1] = last;
    }
    *const_cast<volatile std::uint32_t*>(&stop) = 1;
    if (value == 1) *input.sink = 1;  // almost never, but the loops are not for nothing
}

}  // namespace

Delays measure_delays(bool tensor_load, const std::vector<std::uint32_t>& delays_ns,
                      const std::vector<std::uint32_t>& turns, std::uint32_t repeats, std::uint32_t calibration) {
    const std::size_t blocks = num_sms(), delays = delays_ns.size();
    require(delays >= 1 && delays <= kMostDelays && turns.size() == delays,
            "choose 1 to 8 delays, and turns for each of them");
    require(repeats >= 1 && calibration >= 1, "choose one repeat and more, and one turn and more");
    std::uint64_t nominal_ns = 0;
    for (std::size_t i = 0; i < delays; ++i) {
        nominal_ns += std::uint64_t{delays_ns[i]} * repeats + kTurnNs * turns[i] * (repeats + 2ull * calibration);
    }
    require(nominal_ns <= kLongestNs / 2, "these delays take more than 50 ms together");
    const DeviceBuffer<DelayStamp> stamps(blocks * 2 * delays * repeats);
    const DeviceBuffer<std::uint64_t> loops_ns(blocks * 2 * delays);
    const DeviceBuffer<ClockPair> anchors(blocks * 2);
    const DeviceBuffer<float> sink(1);
    const Report report;
    DelayInput input{static_cast<std::uint32_t>(delays),
                     {},
                     {},
                     repeats,
                     calibration,
                     stamps.get(),
                     loops_ns.get(),
                     anchors.get(),
                     sink.get()};
    for (std::size_t i = 0; i < delays; ++i) {
        input.delay_ns[i] = delays_ns[i];
        input.turns[i] = turns[i];
    }
    launch(tensor_load ? stamp_known_delays<true> : stamp_known_delays<false>,
           {static_cast<std::uint32_t>(blocks), kThreads}, nullptr, input);
    report.check_all();
    return {{{blocks, 2, delays, repeats, 5}, words_of(stamps)},
            {{blocks, 2, delays}, loops_ns.to_host()},
            {{blocks, 2, 2}, words_of(anchors)}};
}

}  // namespace musetrace::probe
