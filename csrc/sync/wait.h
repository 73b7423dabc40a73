// The one bounded wait. Every spin of the megakernel goes through it: it counts nanoseconds, not cycles, polls the
// abort flag, and the first to run out of time says who waited for what.
#pragma once

#include <cstdint>

#include "abi/wait_report.h"
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

// The way out is Arch::leave: the first without an abort flag says why.
//
// Returns when poll() >= want, within kPatience times the budget (and a part of it more, see kSites). `site` is the job
// in which the warp waits; `pause(round)` passes the time between two looks.
template <class Arch, std::uint32_t kPatience = 1, class Poll, class Pause>
MUSETRACE_FN void wait(const Waiter& waiter, std::uint32_t site, std::uint64_t want, Poll poll, Pause pause) {
    std::uint64_t start_ns = 0;
    // One place that polls: on the GPU it is unrolled code, and stands in the instruction cache.
#if defined(__CUDACC__)
#pragma unroll 1
#endif
    for (std::uint32_t round = 0;; ++round) {
        const std::uint64_t got = poll();
        if (__builtin_expect(Arch::all(got >= want), 1)) return;
        if (round == 0) start_ns = Arch::now_ns();
        if (__builtin_expect(
                Arch::must_leave(waiter, kPatience * waiter.budget_ns + waiter.budget_ns / kSites * site, start_ns),
                0)) {
            Arch::leave(waiter, site, static_cast<std::uint32_t>(want), static_cast<std::uint32_t>(got), start_ns);
        }
        pause(round);
    }
}

}  // namespace musetrace::sync
