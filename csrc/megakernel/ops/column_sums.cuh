// The sums of a unit of columns on their way between ranks, in an all-reduce: from each rank's outbox to the block that
// owns the columns, which adds them in rank order.
#pragma once

#include "megakernel/block.cuh"

namespace musetrace::megakernel::ops {

// The sums of a unit, bf16 by columns, as they stand in the outbox and in a rank's exchange: a word for each thread of
// the group, thread 16 token + place.
inline constexpr std::uint32_t kUnitBytes = kTokens * kChunkBytes;
static_assert(kUnitBytes == kGroupThreads * 4);

// A peer's slots for sums from this rank, from `first_unit` on.
template <class W>
__device__ __forceinline__ char* partial_slots(const W& w, std::uint32_t first_unit, std::uint64_t partial,
                                               std::uint32_t peer) {
    const std::size_t first = std::size_t{w.rank.places[peer]} * w.shape().hidden / kUnitRows;
    return w.rank.peers[peer] + partial + (first + first_unit) * kUnitBytes;
}

// Warps 1 to 3: the outbox, `units` of them, to a peer's slots.
template <class W>
__device__ __forceinline__ void send_outbox(const W& w, const char* outbox, std::uint32_t units, char* to) {
#pragma unroll 1
    for (std::uint32_t at = w.sending_thread() * kLoadBytes; at < units * kUnitBytes;
         at += kSendingWarps * kLanes * kLoadBytes) {
        sync::send_slots(to + at, *reinterpret_cast<const uint4*>(outbox + at));
    }
}

// Group: the thread's two columns of a unit.
template <class W>
__device__ __forceinline__ std::uint32_t first_column(const W& w, std::uint32_t unit) {
    return unit * kUnitRows + 2 * pair_place(w.group_thread() % kChunkWords);
}

// Group: these two columns from all ranks, added.
template <class W>
__device__ __forceinline__ float2 receive_columns(W& w, std::uint32_t site, std::uint64_t partial, std::uint32_t unit) {
    const auto& s = w.shape();
    std::uint32_t words[kMaxRanks];
    const char* from = w.slots(partial) + (std::size_t{unit} * kGroupThreads + w.group_thread()) * 4;
    sync::receive_slots<sync::ZerosBf16>(w.waiter, site, words, s.ranks,
                                         [&](std::uint32_t rank) { return from + rank * s.hidden * kTokens * 2; });
    float2 sum{0.0f, 0.0f};
#pragma unroll
    for (std::uint32_t rank = 0; rank < kMaxRanks; ++rank) {
        const float2 value = unpack_bf16(rank < s.ranks ? words[rank] : 0);
        sum = {sum.x + value.x, sum.y + value.y};
    }
    return sum;
}

}  // namespace musetrace::megakernel::ops
