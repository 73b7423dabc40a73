#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "megakernel/cuda_errors.h"
#include "megakernel/peer_memory.h"
#include "musetrace/stamp.cuh"
#include "probe/peer_clock.cuh"
#include "sync/wait.h"

namespace musetrace::probe {
namespace {

using megakernel::check;

constexpr std::size_t kTimesBytes = sizeof(std::uint64_t) * 3 * kPeerClockRounds;

// For the GPU's other work, beside a kernel of this budget.
std::uint64_t patience_of(std::uint64_t budget_ns) { return std::min(kMostPatienceNs, 4 * budget_ns); }

// Both GPUs see these stores and loads in the order of each flag, which is all that is needed.
__device__ __forceinline__ std::uint64_t load(const std::uint64_t* flag) {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}
__device__ __forceinline__ void store(std::uint64_t* flag, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

// A look takes about as long as a poll.
constexpr std::uint32_t kPollsPerLook = 16;

struct PeerWaiter : sync::Waiter {
    std::uint32_t* other_given_up;
};

// One thread waits, until a moment that holds for all waits of a kernel: its budget begins with the first.
struct OneThread {
    static __device__ __forceinline__ bool all(bool mine) { return mine; }
    static __device__ __forceinline__ std::uint64_t look(const sync::Waiter& waiter, std::uint32_t, std::uint32_t,
                                                         std::uint64_t, std::uint64_t, std::uint64_t) {
        std::uint32_t given_up;
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(given_up) : "l"(waiter.abort) : "memory");
        const bool over = stamp_clock_ns() > waiter.budget_ns;
        if (given_up != 0 || over) {
            std::uint32_t* other = static_cast<const PeerWaiter&>(waiter).other_given_up;
            asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(other), "r"(1u) : "memory");
            asm volatile("exit;");
        }
        return 0;
    }
};

__device__ __forceinline__ std::uint64_t wait_for(const PeerWaiter& waiter, const std::uint64_t* flag) {
    std::uint64_t seen = 0;
    sync::wait<OneThread, 1, kPollsPerLook>(waiter, 0, 1, [&] { return seen = load(flag); }, [](std::uint32_t) {});
    return seen;
}

// The time that is sent is the one that was read before, and the time that is read afterwards is read behind a branch
// on what was seen: the hardware cannot take them in another order.
__device__ void ask_rounds(const PeerClockEnd& end, const PeerWaiter& waiter) {
    for (std::uint32_t round = 0; round < kPeerClockRounds; ++round) {
        const std::uint64_t asked = stamp_clock_ns() + end.ahead_ns;
        store(&end.other->asked[round], asked);
        const std::uint64_t answered = wait_for(waiter, &end.own->answered[round]);
        const std::uint64_t seen = stamp_clock_ns() + end.ahead_ns;
        end.times[3 * round] = asked;
        end.times[3 * round + 1] = answered;
        end.times[3 * round + 2] = seen;
        *end.rounds = round + 1;
    }
}

__device__ void answer_rounds(const PeerClockEnd& end, const PeerWaiter& waiter) {
    for (std::uint32_t round = 0; round < kPeerClockRounds; ++round) {
        wait_for(waiter, &end.own->asked[round]);
        store(&end.other->answered[round], stamp_clock_ns() + end.ahead_ns);
        *end.rounds = round + 1;
    }
}

struct PeerClockEnds {
    PeerClockEnd end[2];
};

__global__ void __launch_bounds__(1) peer_clock(const __grid_constant__ PeerClockEnds ends, std::uint64_t budget_ns) {
    const PeerClockEnd& end = ends.end[blockIdx.x];
    PeerWaiter waiter{};
    waiter.budget_ns = stamp_clock_ns() + budget_ns;
    waiter.abort = &end.own->given_up;
    waiter.other_given_up = &end.other->given_up;
    if (end.asks) {
        ask_rounds(end, waiter);
    } else {
        answer_rounds(end, waiter);
    }
}

// Makes a GPU the thread's current one, and lets it have its own again.
class OnGpu {
  public:
    explicit OnGpu(int gpu) {
        check(cudaGetDevice(&before_), "asking for the current GPU");
        check(cudaSetDevice(gpu), "choosing a GPU");
    }
    ~OnGpu() { cudaSetDevice(before_); }
    OnGpu(const OnGpu&) = delete;
    OnGpu& operator=(const OnGpu&) = delete;

  private:
    int before_ = 0;
};

}  // namespace

PeerClock::PeerClock() {
    check(cudaGetDevice(&gpu_), "asking for the current GPU");
    check(cudaMalloc(reinterpret_cast<void**>(&flags_), megakernel::exported_bytes(2 * sizeof(PeerClockFlags))),
          "allocating the flags of a clock");
    check(cudaMalloc(reinterpret_cast<void**>(&times_), kTimesBytes), "allocating times");
    check(cudaMalloc(reinterpret_cast<void**>(&rounds_), 2 * sizeof(std::uint32_t)), "allocating counts");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    check(cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming), "creating an event");
    // Loaded now: a first launch while another kernel spins could wait for it for ever.
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, peer_clock), "loading the clock kernel");
}

std::string PeerClock::handle() const {
    const OnGpu here(gpu_);
    cudaIpcMemHandle_t handle{};
    check(cudaIpcGetMemHandle(&handle, flags_), "exporting the flags of a clock (cudaIpcGetMemHandle)");
    return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

void PeerClock::reach(const std::string& handle) {
    const OnGpu here(gpu_);
    mapped(handle);
}

PeerClockFlags* PeerClock::mapped(const std::string& handle) {
    if (const auto found = mapped_.find(handle); found != mapped_.end()) return found->second;
    cudaIpcMemHandle_t bytes{};
    megakernel::require(handle.size() == sizeof bytes, "a handle has " + std::to_string(sizeof bytes) + " bytes");
    std::memcpy(&bytes, handle.data(), sizeof bytes);
    void* memory = nullptr;
    check(cudaIpcOpenMemHandle(&memory, bytes, cudaIpcMemLazyEnablePeerAccess),
          "mapping the flags of another GPU's clock (cudaIpcOpenMemHandle)");
    return mapped_[handle] = static_cast<PeerClockFlags*>(memory);
}

void PeerClock::clear(std::uint64_t patience_ns) {
    const OnGpu here(gpu_);
    if (stuck_ && cudaEventQuery(ended_) == cudaErrorNotReady) {
        throw std::runtime_error("an earlier exchange of clocks has not ended on this GPU");
    }
    check(cudaMemsetAsync(flags_, 0, 2 * sizeof(PeerClockFlags), stream_), "clearing the flags of a clock");
    wait_for_stream(std::min(patience_ns, kMostPatienceNs));
}

std::uint32_t PeerClock::answer(const std::string& handle, std::uint64_t budget_ns, std::int64_t ahead_ns) {
    const OnGpu here(gpu_);
    const PeerClockEnd end{flags(0), mapped(handle), nullptr, rounds_, ahead_ns, false};
    run(&end, 1, budget_ns);
    return rounds_done(budget_ns);
}

std::vector<PeerClock::Round> PeerClock::ask(const std::string& handle, std::uint64_t budget_ns,
                                             std::int64_t ahead_ns) {
    const OnGpu here(gpu_);
    const PeerClockEnd end{flags(0), mapped(handle), times_, rounds_, ahead_ns, true};
    clear(patience_of(budget_ns));
    run(&end, 1, budget_ns);
    return times_of(rounds_done(budget_ns));
}

std::vector<PeerClock::Round> PeerClock::ask_itself(std::uint64_t budget_ns, std::int64_t ahead_ns) {
    const OnGpu here(gpu_);
    const PeerClockEnd ends[2]{{flags(0), flags(1), times_, rounds_, 0, true},
                               {flags(1), flags(0), nullptr, rounds_ + 1, ahead_ns, false}};
    clear(patience_of(budget_ns));
    run(ends, 2, budget_ns);
    return times_of(rounds_done(budget_ns));
}

void PeerClock::run(const PeerClockEnd* ends, std::uint32_t count, std::uint64_t budget_ns) {
    PeerClockEnds both{};
    for (std::uint32_t which = 0; which < count; ++which) both.end[which] = ends[which];
    check(cudaMemsetAsync(rounds_, 0, 2 * sizeof(std::uint32_t), stream_), "clearing counts");
    peer_clock<<<count, 1, 0, stream_>>>(both, budget_ns);
    check(cudaGetLastError(), "launching the clock kernel");
}

// Polls, so that a GPU whose other work never ends keeps nobody here.
void PeerClock::wait_for_stream(std::uint64_t longest_ns) {
    check(cudaEventRecord(ended_, stream_), "recording an event");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(longest_ns);
    cudaError_t state = cudaEventQuery(ended_);
    while (state == cudaErrorNotReady && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        state = cudaEventQuery(ended_);
    }
    stuck_ = state == cudaErrorNotReady;
    if (stuck_) throw std::runtime_error("the GPU is busy: the exchange of clocks has not ended in time");
    check(state, "running the clock kernel");
}

std::uint32_t PeerClock::rounds_done(std::uint64_t budget_ns) {
    std::uint32_t rounds = 0;
    wait_for_stream(budget_ns + patience_of(budget_ns));
    check(cudaMemcpyAsync(&rounds, rounds_, sizeof rounds, cudaMemcpyDeviceToHost, stream_), "copying counts");
    wait_for_stream(kMostPatienceNs);
    return rounds;
}

std::vector<PeerClock::Round> PeerClock::times_of(std::uint32_t rounds) {
    std::vector<Round> times(rounds);
    check(cudaMemcpyAsync(times.data(), times_, rounds * sizeof(Round), cudaMemcpyDeviceToHost, stream_),
          "copying times");
    wait_for_stream(kMostPatienceNs);
    return times;
}

}  // namespace musetrace::probe
