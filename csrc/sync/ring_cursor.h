// Where a warp stands in a ring, on the host device and on the GPU.
#pragma once

#include <cstdint>

namespace musetrace::sync {

// Runs over the whole launch and never restarts at an op: with a stage count per op that is no multiple of the ring, a
// cursor per op would lose the parity.
struct RingCursor {
    std::uint32_t stage = 0;
    std::uint32_t parity = 0;

    constexpr void advance(std::uint32_t stages) {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1u;
        }
    }
};

}  // namespace musetrace::sync
