// The idle copy of the exchange made empty (exchange.h says why that is safe). It is the work of the blocks that own
// columns: they send something to every rank behind it.
#pragma once

#include "megakernel/draft/ops/product.cuh"

namespace musetrace::megakernel::draft::ops {

// Warps 1 to 3, each a part of the block's part: one alone would be at it when the first sums are to be sent. The fence
// makes all that a warp's lanes have written visible before anything that is sent behind its arrivals.
template <class W>
__device__ __forceinline__ void reset_exchange(W& w) {
    if (w.shared.shares.units.size() == 0) return;
    constexpr std::uint64_t kLine = kLanes * kLoadBytes;
    const std::uint64_t ones = w.params.exchange.ones_bytes(), bytes = w.params.exchange.bytes;
    const std::uint32_t number = w.block() * kSendingWarps + w.warp - 1;
    const Job job = pick_draft_job<MuseDraft::exchange_reset>(0);
    w.begin_sending(job);
#pragma unroll 4
    for (std::uint64_t at = number * kLine + w.lane * kLoadBytes; at < bytes;
         at += w.plan().dense_blocks * kSendingWarps * kLine) {
        const std::uint32_t empty = at < ones ? 0xFFFFFFFFu : 0;
        sync::send_slots(w.rank.idle_exchange + at, uint4{empty, empty, empty, empty});
    }
    __syncwarp();
    __threadfence_system();
    w.shared.reset_done.arrive_as_warp(w.lane);
    w.end_sending(job);
}

}  // namespace musetrace::megakernel::draft::ops
