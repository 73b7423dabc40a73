// The idle copy of the exchange made empty (exchange.h says why that is safe). It is the work of the blocks that own
// columns: they send something to every rank behind it.
#pragma once

#include "megakernel/ops/column_sums.cuh"

namespace musetrace::megakernel::ops {

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

// One warp of each block. The fence makes all that its lanes have written visible before anything that the block sends
// later; it is early in the launch, where this warp has nothing else to do.
template <class W>
__device__ __forceinline__ void empty_idle_copy(W& w) {
    const auto& at = w.params.exchange;
    fill(w, 0, at.ones_bytes(), 0xFFFFFFFFu);
    fill(w, at.ones_bytes(), at.bytes, 0);
    __syncwarp();
    __threadfence_system();
}

// An entry launch has no branch to add up, so its sums of stop 5 are zeros: warp 3 sends them, behind its reset.
template <class W>
__device__ __forceinline__ void send_zeros(W& w) {
    const std::uint32_t zeros = sync::ZerosBf16::encode(0), bytes = w.shared.shares.units.size() * kUnitBytes;
#pragma unroll 1
    for (std::uint32_t peer = 0; peer < w.shape().ranks; ++peer) {
        char* to = partial_slots(w, w.shared.shares.units.begin, w.params.exchange.partial5, peer);
#pragma unroll 1
        for (std::uint32_t at = w.lane * kLoadBytes; at < bytes; at += kLanes * kLoadBytes) {
            sync::send_slots(to + at, uint4{zeros, zeros, zeros, zeros});
        }
    }
}

template <class W>
__device__ __forceinline__ void reset_exchange(W& w) {
    if (w.shared.shares.units.size() == 0) return;
    empty_idle_copy(w);
    if (w.params.kind == LaunchKind::kEntry) send_zeros(w);
}

}  // namespace musetrace::megakernel::ops
