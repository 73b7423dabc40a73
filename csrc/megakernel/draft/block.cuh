// A block's shared memory in a draft launch, and what one warp carries.
#pragma once

#include <cstdint>

#include "megakernel/block.cuh"
#include "megakernel/draft/params.h"
#include "megakernel/ops/dense.cuh"
#include "musetrace/abi/muse_draft_jobs.h"

namespace musetrace::megakernel::draft {

using abi::MuseDraft;

// One stage less than the layer kernel's ring: x takes the room.
inline constexpr std::uint32_t kRingStages = 7;
using Ring = sync::GpuRing<kRingStages, Bf16Unit::bytes(kMaxStageK), kConsumerWarps>;

// The pool holds, one after the other, the attention's parts of the eight warps and the x of each product: what was in
// it is overwritten behind a meeting of the group that is behind the last read.
inline constexpr std::uint32_t kAttentionBytes = kGroupWarps * kTokens * kPartFloats * 4;
inline constexpr std::uint32_t kPieceBytes = kPieceK / kChunkK * kTokens * kChunkBytes;
inline constexpr std::uint32_t kPoolBytes = kAttentionBytes > kPieceBytes ? kAttentionBytes : kPieceBytes;

struct SharedMemory {
    Ring ring;
    alignas(128) char pool[kPoolBytes];
    alignas(128) std::uint32_t outbox[kMaxUnits][kGroupThreads];  // what is to be sent, two bf16 columns each
    alignas(128) float2 branch[kMaxUnits][kGroupThreads];         // sums so far, each thread its own
    alignas(128) float sums[2][kTileFloats];                      // scratch of the group
    sync::GpuBarrier outbox_full, outbox_empty;
    sync::GpuBarrier reset_done;
    std::uint32_t delay_seed;
    DraftShares shares;
    sync::Waiter waiter;
    DraftRank rank;
    BlockSlots<MuseDraft> stamps;

    // One thread; then __syncthreads().
    __device__ __forceinline__ void init() {
        outbox_full.init_for_warps(kGroupWarps);
        outbox_empty.init_for_warps(kSendingWarps);
        reset_done.init_for_warps(kSendingWarps);
        ring.init();  // with the fence
    }
};
static_assert(sizeof(SharedMemory) <= 232'448);

template <std::uint32_t... kJobs>
__device__ __forceinline__ Job pick_draft_job(std::uint32_t which) {
    return pick_job_of<MuseDraft, kJobs...>(which);
}

template <StampMode kMode, bool kDelays, std::uint32_t kStampRegisters>
struct Warp : BlockWarp<SharedMemory, MuseDraft, kMode, kDelays, kStampRegisters> {
    const DraftParams& params;
    const DraftRank& rank;  // in shared memory

    __device__ __forceinline__ const DraftSizes& shape() const { return params.shape; }
    __device__ __forceinline__ const DraftPlan& plan() const { return params.plan; }
    __device__ __forceinline__ char* slots(std::uint64_t offset) const { return rank.exchange + offset; }
    __device__ __forceinline__ bool is_context() const { return params.kind == DraftKind::kContext; }
    // Of the root; only behind the launch in front.
    __device__ __forceinline__ std::uint32_t position() const { return params.state->position; }
};

}  // namespace musetrace::megakernel::draft
