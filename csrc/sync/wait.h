// The one bounded wait. Every spin of the megakernel goes through it: it counts nanoseconds, not cycles, polls the
// abort flag, and the first to run out of time says who waited for what.
#pragma once

#include <cstdint>

#include "musetrace/abi/wait_report.h"
#include "musetrace/stamp.cuh"

namespace musetrace::sync {

struct Waiter {
    abi::WaitReport* report;
    std::uint64_t budget_ns;
    std::uint32_t rank;
    std::uint32_t block;
    std::uint32_t warp;
    // Set by the first that gives up, polled by every wait. Where the report is in pinned memory this is not.
    std::uint32_t* abort;
};

// A wait within a block has this many times the budget of one for another block or rank: when an arrival from outside
// is lost, the warps behind it have often waited longer, and the report must name the cause.
inline constexpr std::uint32_t kLocalPatience = 2;

// Job tables list the jobs in the order of the layer, and a wait further down has somewhat more patience: when an
// arrival is lost, blocks that had less to do already wait for what follows from it, and the report must name the
// first.
inline constexpr std::uint32_t kSites = 128;

// Returns when poll() >= want, within kPatience times the budget (and a part of it more, see kSites). `site` is the job
// in which the warp waits; `pause(round)` passes the time between two polls.
//
// Every kPollsPerLook polls comes a look at the clock and the abort flag, Arch::look: it returns when the wait began,
// by its first call, and does not return when the time is over or somebody else gave up. The first of all says why.
template <class Arch, std::uint32_t kPatience = 1, std::uint32_t kPollsPerLook = Arch::kPollsPerLook, class Poll,
          class Pause>
MUSETRACE_FN void wait(const Waiter& waiter, std::uint32_t site, std::uint64_t want, Poll poll, Pause pause) {
    decltype(Arch::look(waiter, site, 0, 0, 0, 0)) start = 0;
    // One place that polls: on the GPU it is unrolled code, and stands in the instruction cache.
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (std::uint32_t round = 0;; ++round) {
        const std::uint64_t got = poll();
        if (__builtin_expect(Arch::all(got >= want), 1)) return;
        if (round % kPollsPerLook == 0) start = Arch::look(waiter, site, kPatience, want, got, start);
        pause(round);
    }
}

// What a wait may take, in the unit of `budget`.
template <class Time>
MUSETRACE_FN constexpr Time longest_wait(Time budget, std::uint32_t patience, std::uint32_t site) {
    return patience * budget + budget / kSites * site;
}

}  // namespace musetrace::sync
