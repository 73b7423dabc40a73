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
};

template <class Arch>
[[noreturn]] MUSETRACE_FN void time_out(const Waiter& waiter, std::uint32_t site, std::uint64_t want, std::uint64_t got,
                                        std::uint64_t waited_ns) {
    if (Arch::claim(&waiter.report->claimed)) {
        waiter.report->site = site;
        waiter.report->rank = waiter.rank;
        waiter.report->block = waiter.block;
        waiter.report->warp = waiter.warp;
        waiter.report->want = want;
        waiter.report->got = got;
        waiter.report->waited_ns = waited_ns;
        Arch::store_release(&waiter.report->abort, 1u);
    }
    Arch::abandon();
}

// Returns when poll() >= want. `site` is the job in which the warp waits; `pause(round)` passes the time between two
// looks.
template <class Arch, class Poll, class Pause>
MUSETRACE_FN void wait(const Waiter& waiter, std::uint32_t site, std::uint64_t want, Poll poll, Pause pause) {
    if (poll() >= want) return;
    const std::uint64_t start_ns = Arch::now_ns();
    for (std::uint32_t round = 0;; ++round) {
        const std::uint64_t got = poll();
        if (got >= want) return;
        if (Arch::load_acquire(&waiter.report->abort) != 0) Arch::abandon();
        const std::uint64_t waited_ns = Arch::now_ns() - start_ns;
        if (waited_ns > waiter.budget_ns) time_out<Arch>(waiter, site, want, got, waited_ns);
        pause(round);
    }
}

// A wait within a block has this many times the budget of one for another block or rank: when an arrival from outside
// is lost, the warps behind it have often waited longer, and the report must name the cause.
inline constexpr std::uint64_t kLocalPatience = 2;

MUSETRACE_FN Waiter patient(Waiter waiter) {
    waiter.budget_ns *= kLocalPatience;
    return waiter;
}

}  // namespace musetrace::sync
