// The idle copy of the exchange made empty (exchange.h says why that is safe), and vectors brought into L1. The first
// is the work of the blocks that own columns: they send something to every rank behind it.
#pragma once

#include "megakernel/draft/block.cuh"

namespace musetrace::megakernel::draft::ops {

template <class W>
__device__ __forceinline__ void fill(W& w, std::uint64_t begin, std::uint64_t end, std::uint32_t pattern) {
    constexpr std::uint32_t kLine = kLanes * kLoadBytes;
    const uint4 words{pattern, pattern, pattern, pattern};
#pragma unroll 4
    for (std::uint64_t at = begin + w.block() * kLine; at < end; at += std::uint64_t{w.plan().dense_blocks} * kLine) {
        const std::uint64_t own = at + w.lane * kLoadBytes;
        if (own < end) sync::send_slots(w.rank.idle_exchange + own, words);
    }
}

// Warp 3. The fence makes all that its lanes have written visible before anything that the block sends later.
template <class W>
__device__ __forceinline__ void reset_exchange(W& w) {
    if (w.shared.shares.units.size() == 0) return;
    const DraftExchange& at = w.params.exchange;
    fill(w, 0, at.ones_bytes(), 0xFFFFFFFFu);
    fill(w, at.ones_bytes(), at.bytes, 0);
    __syncwarp();
    __threadfence_system();
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
