#include "probe/host_probe.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "musetrace/abi/job.h"
#include "musetrace/stamp.cuh"
#include "sync/host_arch.h"

namespace musetrace::probe {
namespace {

constexpr std::uint64_t kAnswerNs = 1'000'000'000;

// clang-format off
#define MUSETRACE_HOST_ROLES(ROLE) ROLE(worker, 0, 0, 1u)
#define MUSETRACE_HOST_JOBS(JOB)              \
    JOB(load0, probe, Load, worker, none)     \
    JOB(mma0, probe, Compute, worker, none)   \
    JOB(load1, probe, Load, worker, none)     \
    JOB(mma1, probe, Compute, worker, none)   \
    JOB(load2, probe, Load, worker, none)     \
    JOB(mma2, probe, Compute, worker, none)   \
    JOB(load3, probe, Load, worker, none)     \
    JOB(mma3, probe, Compute, worker, none)
// clang-format on
MUSETRACE_JOB_TABLE(HostJobs, "host_probe", 1, MUSETRACE_HOST_ROLES, MUSETRACE_HOST_JOBS);

constexpr std::uint32_t kRepeats = kHostStamps / (2 * HostJobs::kNumJobs);
static_assert(kRepeats * 2 * HostJobs::kNumJobs == kHostStamps);

template <std::uint32_t kJob = 0, class Stamps>
void stamp_jobs(Stamps& stamps) {
    if constexpr (kJob < HostJobs::kNumJobs) {
        MUSETRACE_BEGIN(stamps, kJob);
        MUSETRACE_END(stamps, kJob);
        stamp_jobs<kJob + 1>(stamps);
    }
}

template <StampMode kMode>
std::uint64_t time_stamps() {
    constexpr abi::StampLayout kLayout{1, abi::kSlotMap<HostJobs>.total, abi::slot_bytes(kMode)};
    alignas(abi::kRegionAlign) static std::array<char, kLayout.region_bytes()> memory;
    const StampRegion region{memory.data(), kLayout};
    const std::uint64_t begin = stamp_clock_ns();
    for (std::uint32_t repeat = 0; repeat < kRepeats; ++repeat) {
        WarpStamps<HostJobs, kMode> stamps(region, 0, 0);
        stamp_jobs(stamps);
        stamps.flush();
        // What was stamped may be read by somebody: it is stored in every turn.
        asm volatile("" ::: "memory");
    }
    return stamp_clock_ns() - begin;
}

std::uint64_t unix_ns() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// One core of those that the process may use, from the first or from the last.
void pin(bool last) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
        const int cpu = last ? CPU_SETSIZE - 1 - i : i;
        if (!CPU_ISSET(cpu, &allowed)) continue;
        cpu_set_t only;
        CPU_ZERO(&only);
        CPU_SET(cpu, &only);
        pthread_setaffinity_np(pthread_self(), sizeof only, &only);
        return;
    }
}

struct alignas(128) Line {
    std::atomic<std::uint32_t> word{0};
};

// False after a second. Where the other thread has no core of its own it gets this one's now and then.
bool await(const Line& line, std::uint32_t value) {
    const std::uint64_t begin = stamp_clock_ns();
    for (std::uint32_t round = 1; line.word.load(std::memory_order_acquire) != value; ++round) {
        sync::HostArch::spin();
        if (round % 4096 != 0) continue;
        if (stamp_clock_ns() - begin > kAnswerNs) return false;
        sched_yield();
    }
    return true;
}

}  // namespace

std::vector<std::uint64_t> read_host_clock(std::size_t count) {
    std::vector<std::uint64_t> times(count);
    for (std::uint64_t& time : times) time = stamp_clock_ns();
    return times;
}

std::vector<std::uint64_t> time_host_reads(std::size_t samples) {
    std::vector<std::uint64_t> times(samples);
    for (std::uint64_t& time : times) {
        const std::uint64_t begin = stamp_clock_ns();
        for (std::uint32_t i = 1; i < kHostReads; ++i) stamp_clock_ns();
        time = stamp_clock_ns() - begin;
    }
    return times;
}

std::vector<std::uint64_t> time_host_stamps(std::size_t samples) {
    std::vector<std::uint64_t> times(3 * samples);
    for (std::size_t sample = 0; sample < samples; ++sample) {
        for (std::size_t turn = 0; turn < 3; ++turn) {
            const std::size_t mode = sample % 2 == 0 ? turn : 2 - turn;
            times[3 * sample + mode] = mode == 0   ? time_stamps<StampMode::kOff>()
                                       : mode == 1 ? time_stamps<StampMode::kStore>()
                                                   : time_stamps<StampMode::kRegister>();
        }
    }
    return times;
}

std::vector<std::uint64_t> host_unix_brackets(std::size_t rounds) {
    std::vector<std::uint64_t> brackets(3 * rounds);
    for (std::size_t round = 0; round < rounds; ++round) {
        brackets[3 * round] = stamp_clock_ns();
        brackets[3 * round + 1] = unix_ns();
        brackets[3 * round + 2] = stamp_clock_ns();
    }
    return brackets;
}

std::vector<std::uint64_t> time_host_hops(std::size_t samples) {
    std::vector<std::uint64_t> times(samples);
    Line there, back;
    const auto trips = static_cast<std::uint32_t>(samples) * kHostTrips;
    std::atomic<bool> answered{true};
    std::thread answering([&] {
        pin(true);
        for (std::uint32_t trip = 1; trip <= trips && await(there, trip); ++trip) {
            back.word.store(trip, std::memory_order_release);
        }
    });
    std::thread asking([&] {
        pin(false);
        std::uint32_t trip = 0;
        for (std::uint64_t& time : times) {
            const std::uint64_t begin = stamp_clock_ns();
            for (std::uint32_t i = 0; i < kHostTrips && answered; ++i) {
                there.word.store(++trip, std::memory_order_release);
                answered = await(back, trip);
            }
            if (!answered) return;
            time = stamp_clock_ns() - begin;
        }
    });
    asking.join();
    answering.join();
    if (!answered) throw std::runtime_error("a thread got no answer from another one within a second");
    return times;
}

}  // namespace musetrace::probe
