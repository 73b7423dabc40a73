// The idle copy of the exchange made empty (exchange.h says why that is safe).
#pragma once

#include "megakernel/block.cuh"

namespace musetrace::megakernel::ops {

template <class W>
__device__ __forceinline__ void fill(W& w, std::uint64_t begin, std::uint64_t end, std::uint32_t pattern) {
    constexpr std::uint32_t kLine = kLanes * kLoadBytes;
    const uint4 words{pattern, pattern, pattern, pattern};
#pragma unroll 4
    for (std::uint64_t at = begin + w.block() * kLine; at < end; at += std::uint64_t{w.shape().blocks} * kLine) {
        const std::uint64_t own = at + w.lane * kLoadBytes;
        if (own < end) sync::send_slots(w.rank.idle_exchange + own, words);
    }
}

// One warp of each block. The fence makes it visible before anything that this warp sends later; it is early in the
// launch, where this warp has nothing else to do.
template <class W>
__device__ __forceinline__ void reset_exchange(W& w) {
    const ExchangeLayout& at = w.params.exchange;
    fill(w, 0, at.ones_bytes(), 0xFFFFFFFFu);
    fill(w, at.ones_bytes(), at.bytes, 0);
    __threadfence_system();
}

}  // namespace musetrace::megakernel::ops
