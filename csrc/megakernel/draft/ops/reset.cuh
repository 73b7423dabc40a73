// The idle copy of the exchange made empty (exchange.h says why that is safe), and vectors brought into L1. The first
// is the work of the blocks that own columns: they send something to every rank behind it.
#pragma once

#include "megakernel/draft/block.cuh"
#include "megakernel/ops/reset.cuh"

namespace musetrace::megakernel::draft::ops {

// Warp 3.
template <class W>
__device__ __forceinline__ void reset_exchange(W& w) {
    if (w.shared.shares.units.size() == 0) return;
    megakernel::ops::empty_idle_copy(w);
    w.shared.reset_done.arrive_as_warp(w.lane);
}

// Warps 1 and 2: the vectors of the block's columns, which would cost the group a microsecond each.
template <class W>
__device__ __forceinline__ void warm(const W& w) {
    const Share units = w.shared.shares.units;
    const std::uint32_t bytes = units.size() * kUnitRows * 4, at = units.begin * kUnitRows;
    constexpr std::uint32_t kLine = 128;
    const std::uint32_t thread = (w.warp - 1) * kLanes + w.lane;
#pragma unroll 1
    for (std::uint32_t i = thread; i < bytes / kLine * (kTokens + 2); i += 2 * kLanes) {
        const std::uint32_t row = i % (kTokens + 2), line = i / (kTokens + 2) * (kLine / 4);
        const float* from = row == 0   ? w.rank.norm1
                            : row == 1 ? w.rank.norm2
                                       : w.rank.residual + std::size_t{row - 2} * w.shape().hidden;
        touch(from + at + line);
    }
}
static_assert(kUnitRows * 4 == 128, "a unit of a vector is a line");

}  // namespace musetrace::megakernel::draft::ops
