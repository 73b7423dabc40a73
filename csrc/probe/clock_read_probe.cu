// What reading a clock costs, and which Unix time %globaltimer shows.
#include <time.h>

#include <atomic>
#include <stdexcept>

#include "probe/clocks.cuh"
#include "probe/device_probe.h"
#include "probe/launch.cuh"
#include "sync/gpu_arch.cuh"

namespace musetrace::probe {
namespace {

constexpr std::uint32_t kReads = 32;
constexpr std::uint32_t kMostSamples = 1'000'000;

template <bool kGlobaltimer>
__global__ void read_clock_in_a_row(std::uint64_t* cycles, std::uint32_t samples) {
    // A read that nobody uses is not made.
    std::uint64_t used = 0;
#pragma unroll 1
    for (std::uint32_t sample = 0; sample < samples; ++sample) {
        const std::uint64_t begin = cycles_now();
#pragma unroll
        for (std::uint32_t i = 0; i < kReads; ++i) used ^= kGlobaltimer ? stamp_clock_ns() : cycles_now();
        cycles[sample] = cycles_now() - begin;
    }
    if (used == 1) cycles[0] = 0;  // almost never
}

// In the host's memory, mapped: the host asks with the number of the round, the kernel answers with the time.
struct Mailbox {
    alignas(128) std::uint32_t asked;
    alignas(128) std::uint64_t answer_ns;
};

// A whole round takes some microseconds, unless the host's thread loses its core.
constexpr std::uint64_t kHostBudgetNs = 500'000'000;

__global__ void __launch_bounds__(32) answer_host(Mailbox* mailbox, std::uint32_t rounds, abi::WaitReport* report) {
    __shared__ sync::Waiter waiter;
    if (threadIdx.x == 0) waiter = waiter_of(report, kHostBudgetNs);
    __syncwarp();
#pragma unroll 1
    for (std::uint32_t round = 1; round <= rounds; ++round) {
        const auto poll = [&] { return std::uint64_t{sync::GpuArch::load_relaxed(&mailbox->asked)}; };
        sync::wait<sync::GpuArch, 1, 1024>(waiter, kHostAsks, round, poll, [](std::uint32_t) {});
        if (threadIdx.x == 0) {
            const std::uint64_t now = stamp_clock_ns();
            asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(&mailbox->answer_ns), "l"(now) : "memory");
        }
        __syncwarp();
    }
}

std::uint64_t unix_ns() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

class SharedMailbox {
  public:
    SharedMailbox() {
        check(cudaHostAlloc(reinterpret_cast<void**>(&host_), sizeof(Mailbox), cudaHostAllocMapped),
              "allocating memory of the host that the GPU sees");
        *host_ = {};
        const cudaError_t mapped = cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_), host_, 0);
        if (mapped != cudaSuccess) cudaFreeHost(host_);
        check(mapped, "mapping memory of the host");
    }
    ~SharedMailbox() { cudaFreeHost(host_); }
    SharedMailbox(const SharedMailbox&) = delete;
    SharedMailbox& operator=(const SharedMailbox&) = delete;

    Mailbox* device() const { return device_; }

    // Before, what the GPU said, after.
    void ask(std::uint32_t round, std::vector<std::uint64_t>& to) {
        auto& asked = reinterpret_cast<std::atomic<std::uint32_t>&>(host_->asked);
        auto& answer = reinterpret_cast<std::atomic<std::uint64_t>&>(host_->answer_ns);
        answer.store(0, std::memory_order_relaxed);
        const std::uint64_t before = unix_ns();
        asked.store(round, std::memory_order_release);
        std::uint64_t said = 0, after = before;
        while ((said = answer.load(std::memory_order_acquire)) == 0 && after - before < kHostBudgetNs) {
            after = unix_ns();
        }
        after = unix_ns();
        if (said == 0) throw std::runtime_error("the GPU did not answer the host within 500 ms");
        to.insert(to.end(), {before, said, after});
    }

  private:
    Mailbox* host_ = nullptr;
    Mailbox* device_ = nullptr;
};

}  // namespace

Counts measure_clock_reads(bool globaltimer, std::uint32_t samples) {
    require(samples >= 1 && samples <= kMostSamples, "choose 1 to 1000000 samples");
    const DeviceBuffer<std::uint64_t> cycles(samples);
    const Report report;
    const auto kernel = globaltimer ? read_clock_in_a_row<true> : read_clock_in_a_row<false>;
    launch(kernel, {1, 1}, nullptr, cycles.get(), samples);
    report.check_all();
    return {{samples}, cycles.to_host()};
}

Counts measure_unix_brackets(std::uint32_t rounds) {
    require(rounds >= 1 && rounds <= kMostSamples, "choose 1 to 1000000 rounds");
    const Report report;
    SharedMailbox mailbox;
    std::vector<std::uint64_t> brackets;
    launch(answer_host, {1, 32}, nullptr, mailbox.device(), rounds, report.get());
    try {
        for (std::uint32_t round = 1; round <= rounds; ++round) mailbox.ask(round, brackets);
    } catch (...) {
        // The kernel gives up by itself, and uses the mailbox until then.
        cudaDeviceSynchronize();
        throw;
    }
    report.check_all();
    return {{rounds, 3}, brackets};
}

}  // namespace musetrace::probe
