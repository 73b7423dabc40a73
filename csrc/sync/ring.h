// The weight ring: one producer warp fills stages, all consumer warps empty them. The order of the stages is the
// same on both sides for the whole launch, across op boundaries, so a stage needs no label.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/mbarrier.h"
#include "sync/ring_cursor.h"

namespace musetrace::sync {

class Ring {
  public:
    Ring(std::uint32_t stages, std::uint32_t stage_bytes, std::uint32_t consumers)
        : stages_(stages), stage_bytes_(stage_bytes), consumers_(consumers), full_(stages), empty_(stages) {
        bytes_.resize(std::size_t{stages} * stage_bytes);
    }

    void init() {
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            full_[stage].init(1);
            // Per consumer warp: one arrival for all of them would free the stage under the slower ones.
            empty_[stage].init(consumers_);
        }
    }

    std::uint32_t stage_bytes() const { return stage_bytes_; }

    // Producer. A fresh ring is empty: waiting for the phase before the first passes at once.
    char* wait_empty(const Waiter& waiter, std::uint32_t site, const RingCursor& cursor) {
        empty_[cursor.stage].wait_parity(waiter, site, cursor.parity ^ 1u);
        return bytes_.data() + std::size_t{cursor.stage} * stage_bytes_;
    }
    void mark_full(RingCursor& cursor) {
        full_[cursor.stage].arrive();
        cursor.advance(stages_);
    }

    // Consumers.
    const char* wait_full(const Waiter& waiter, std::uint32_t site, const RingCursor& cursor) {
        full_[cursor.stage].wait_parity(waiter, site, cursor.parity);
        return bytes_.data() + std::size_t{cursor.stage} * stage_bytes_;
    }
    void mark_empty(RingCursor& cursor) {
        empty_[cursor.stage].arrive();
        cursor.advance(stages_);
    }

  private:
    std::uint32_t stages_;
    std::uint32_t stage_bytes_;
    std::uint32_t consumers_;
    std::vector<MBarrier> full_;
    std::vector<MBarrier> empty_;
    std::vector<char> bytes_;
};

}  // namespace musetrace::sync
