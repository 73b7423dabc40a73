// A barrier in a block's shared memory, with the meaning of the hardware's mbarrier: a phase ends when the expected
// number of arrivals is in, and a waiter names the parity of the phase it waits for. And a counter of progress for
// data that lands piece by piece.
#pragma once

#include <cstdint>

#include "sync/host_arch.h"
#include "sync/wait.h"

namespace musetrace::sync {

class MBarrier {
  public:
    // Before any arrival of the launch; ordered before it by the launch itself.
    void init(std::uint32_t arrivals) {
        expected_ = arrivals;
        HostArch::store_relaxed(&pending_, arrivals);
        phase_.reset(0);
    }

    // What the caller wrote before is visible to whoever sees the phase end.
    void arrive() {
        if (HostArch::fetch_add(&pending_, ~0u) != 1) return;
        HostArch::store_relaxed(&pending_, expected_);
        phase_.publish(phase_.value() + 1);
    }

    // Waits for the end of the current phase of this parity (0 for the first).
    void wait_parity(const Waiter& waiter, std::uint32_t site, std::uint32_t parity) const {
        std::uint32_t seen = 0;
        const auto poll = [&] {
            seen = phase_.value();
            return std::uint64_t{(seen & 1u) != parity};
        };
        wait<HostArch, kLocalPatience>(waiter, site, 1, poll, [&](std::uint32_t round) { phase_.pause(round, seen); });
    }

  private:
    std::uint32_t expected_ = 0;
    std::uint32_t pending_ = 0;
    EventWord phase_;
};

class Progress {
  public:
    void init() { count_.reset(0); }

    // By one warp only.
    void advance() { count_.publish(count_.value() + 1); }

    void wait_for(const Waiter& waiter, std::uint32_t site, std::uint32_t count) const {
        std::uint32_t seen = 0;
        const auto poll = [&] { return std::uint64_t{seen = count_.value()}; };
        wait<HostArch, kLocalPatience>(waiter, site, count, poll,
                                       [&](std::uint32_t round) { count_.pause(round, seen); });
    }

  private:
    EventWord count_;
};

}  // namespace musetrace::sync
