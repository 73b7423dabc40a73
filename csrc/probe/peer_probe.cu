// How long a word takes from one GPU to another and back.
#include <stdexcept>
#include <string>

#include "probe/device_probe.h"
#include "probe/hop.cuh"

namespace musetrace::probe {
namespace {

// The two kernels are launched one after the other, by a thread that may lose its core.
constexpr std::uint64_t kPeerBudgetNs = 500'000'000;

struct PeerInput {
    char* own;       // [rounds] lines, in the memory of this GPU: what the other one fills
    char* of_other;  // the same of the other
    bool first;      // sends first, and keeps the time
    std::uint32_t rounds;
    std::uint64_t* cycles;  // [rounds], and
    ClockPair* clocks;      // [begin, end], of the first
    abi::WaitReport* report;
};

__global__ void __launch_bounds__(abi::kLanesPerWarp) hop_between_gpus(const __grid_constant__ PeerInput input) {
    __shared__ sync::Waiter waiter;
    __shared__ std::uint64_t cycles[kMostRounds];
    if (threadIdx.x == 0) waiter = waiter_of(input.report, kPeerBudgetNs);
    __syncwarp();
    if (!input.first) return await_and_send<true>(waiter, input.own, input.of_other, input.rounds);
    const ClockPair begin = both_clocks();
    send_and_await<true>(waiter, input.of_other, input.own, input.rounds, cycles);
    const ClockPair end = both_clocks();
    for (std::uint32_t i = threadIdx.x; i < input.rounds; i += abi::kLanesPerWarp) input.cycles[i] = cycles[i];
    if (threadIdx.x == 0) {
        input.clocks[0] = begin;
        input.clocks[1] = end;
    }
}

// The current device of this thread is again the one before at the end.
class OnDevice {
  public:
    explicit OnDevice(int device) {
        check(cudaGetDevice(&before_), "asking for the GPU");
        check(cudaSetDevice(device), "choosing a GPU");
    }
    ~OnDevice() { cudaSetDevice(before_); }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

  private:
    int before_ = 0;
};

void let_access(int from, int to) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, from, to), "asking whether GPUs reach each other's memory");
    if (can == 0) {
        throw std::runtime_error("GPU " + std::to_string(from) + " cannot reach the memory of GPU " +
                                 std::to_string(to));
    }
    const OnDevice on(from);
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
    } else {
        check(error, "letting GPUs reach each other's memory");
    }
}

}  // namespace

Cycles measure_peer_hops(int first, int second, std::uint32_t rounds) {
    require(rounds >= 1 && rounds <= kMostRounds, "choose 1 to 1024 rounds");
    let_access(first, second);
    let_access(second, first);
    const LaunchShape shape{1, abi::kLanesPerWarp};
    // Slots of a stride that both directions share, see hop.cuh.
    const std::size_t slot_bytes = std::size_t{rounds} * 2 * kSlotLine;
    const OnDevice on_first(first);
    const DeviceBuffer<char> first_slots(slot_bytes);
    const DeviceBuffer<std::uint64_t> cycles(rounds);
    const DeviceBuffer<ClockPair> clocks(2);
    const Report first_report;
    prepare(hop_between_gpus, shape);
    {
        const OnDevice on_second(second);
        const DeviceBuffer<char> second_slots(slot_bytes);
        const Report second_report;
        prepare(hop_between_gpus, shape);
        launch(hop_between_gpus, shape, nullptr,
               PeerInput{second_slots.get(), first_slots.get(), false, rounds, nullptr, nullptr, second_report.get()});
        {
            const OnDevice back_on_first(first);
            launch(hop_between_gpus, shape, nullptr,
                   PeerInput{first_slots.get(), second_slots.get(), true, rounds, cycles.get(), clocks.get(),
                             first_report.get()});
        }
        second_report.check_all();
    }
    first_report.check_all();
    return {{{rounds}, cycles.to_host()}, {{2, 2}, words_of(clocks)}};
}

}  // namespace musetrace::probe
