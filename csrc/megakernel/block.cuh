// A block's shared memory, and what one warp of a launch carries.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "megakernel/expert_stream.cuh"
#include "megakernel/layer_params.h"
#include "musetrace/abi/muse_hopper_jobs.h"
#include "musetrace/stamp.cuh"
#include "sync/gpu_slots.cuh"

namespace musetrace::megakernel {

using abi::MuseHopper;
using sync::kAllLanes;

inline constexpr std::uint32_t kGroupThreads = kGroupWarps * kLanes;
static_assert(kGroupThreads == sync::GpuArch::kGroupThreads && kFirstGroupWarp * kLanes == sync::GpuArch::kGroupFirst);
inline constexpr std::uint32_t kBlockThreads = MuseHopper::kWarpsPerBlock * kLanes;

// Rows of tokens that the experts read, as a ring. 64 bytes more than a row, so that the eight rows of a B fragment lie
// in both halves of the banks.
inline constexpr std::uint32_t kRowSlots = 8;
inline constexpr std::uint32_t kRowBytes = 4096 * 2 + kChunkBytes;
inline constexpr std::uint32_t kInputWarps = 2;
// Warps 1 to 3 send dense results together: one warp would be a microsecond at it while all others wait. Warp 3 stamps.
inline constexpr std::uint32_t kSenderWarp = 3, kSendingWarps = kInputWarps + 1;
// Both input warps arrive when their rows of a tile are there. One can be ahead of the other by eight rows, which may
// be eight tiles, and by one more in which it has no row: sixteen barriers, and no phase is taken for another.
inline constexpr std::uint32_t kTileBarriers = 16;

// The pool is one thing after the other. Dense operands, outbox and branch lie in it before and after the experts:
//   attention   [0, 34 KB)      parts of the eight warps, until the group met behind their merge
//   x           [0, 32 KB)      a slice of K of 16 tokens, by columns
//   outbox      [36 KB, 44 KB)  what the sender has to send
//   branch      [44 KB, 60 KB)  fp32 sums of the all-reduce, each thread its own
// and the expert rows take all of it, from when the sender has sent the router's outbox. The x of an op overwrites that
// of the op before: it comes from blocks that needed this block's result of the op before, and this block made that
// behind a meeting of its group, which is behind the last read.
inline constexpr std::uint32_t kPoolBytes = kRowSlots * kRowBytes;
inline constexpr std::uint32_t kXBytes = 32 * 1024;
inline constexpr std::uint32_t kOutboxAt = 36 * 1024, kOutboxBytes = 8 * 1024;
inline constexpr std::uint32_t kBranchAt = kOutboxAt + kOutboxBytes;
inline constexpr std::uint32_t kUnitFloats = kUnitRows * kTokens;
static_assert(kBranchAt + 8 * kUnitFloats * 4 <= kPoolBytes);

// Sums of one tile of the experts: [K group][unit][lane] float4.
inline constexpr std::uint32_t kTileFloats = kGroupsOfK * Nvfp4Unit::kUnits * kLanes * 4;

struct WorkItem {
    std::uint16_t expert;
    std::uint8_t first;  // in `pairs`
    std::uint8_t count;  // 1 to kExpertTokens
};

using StampSlots = BlockSlots<MuseHopper>;

struct SharedMemory {
    ExpertRing ring;
    alignas(128) char pool[kPoolBytes];
    alignas(128) float sums[2][kTileFloats];  // also scratch of the group, see WarpBase::scratch
    sync::GpuBarrier routed;                  // items and pairs are there
    sync::GpuBarrier outbox_full, outbox_empty;
    sync::GpuBarrier tile_full[kTileBarriers], rows_empty[kRowSlots];
    sync::GpuBarrier sums_full[2], sums_empty[2];
    alignas(16) std::uint8_t ids[kMaxPairs];  // [token][place], ascending in a token
    float weights[kMaxPairs];
    WorkItem items[kMaxPairs];
    std::uint8_t pairs[kMaxPairs];  // sorted by expert, then token
    std::uint32_t item_count;
    std::uint32_t delay_seed;
    BlockShares shares;
    sync::Waiter waiter;
    RankParams rank;  // pointers are loaded where they are used: as kernel parameters they would be kept in registers
    StampSlots stamps;

    // One thread; then __syncthreads().
    __device__ __forceinline__ void init() {
        routed.init_for_warps(kGroupWarps);
        outbox_full.init_for_warps(kGroupWarps);
        outbox_empty.init_for_warps(kSendingWarps);
        for (sync::GpuBarrier& barrier : tile_full) barrier.init_for_warps(kInputWarps);
        for (sync::GpuBarrier& barrier : rows_empty) barrier.init_for_warps(kGroupWarps);
        for (std::uint32_t buffer = 0; buffer < 2; ++buffer) {
            sums_full[buffer].init_for_warps(kGroupWarps);
            sums_empty[buffer].init_for_warps(1);
        }
        ring.init();  // with the fence
    }
};
static_assert(sizeof(SharedMemory) <= 232'448);

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ __forceinline__ float2 unpack_bf16(std::uint32_t word) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u)};
}
__device__ __forceinline__ float2 load_pair(const float* values, std::size_t at) {
    return *reinterpret_cast<const float2*>(values + at);
}
__device__ __forceinline__ float round_bf16(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

// A job that is chosen at run time: code that several jobs share stands once in the instruction cache.
struct Job {
    std::uint32_t site;
    std::uint32_t slot;
};
template <class Table, std::uint32_t kFirst, std::uint32_t... kOthers>
__device__ __forceinline__ Job pick_job_of(std::uint32_t which) {
    Job job{kFirst, abi::local_slot<Table>(kFirst)};
    std::uint32_t place = 0;
    ((++place == which ? (job = {kOthers, abi::local_slot<Table>(kOthers)}, 0) : 0), ...);
    return job;
}
template <std::uint32_t... kJobs>
__device__ __forceinline__ Job pick_job(std::uint32_t which) {
    return pick_job_of<MuseHopper, kJobs...>(which);
}

// What all warps have, whatever the parameters are.
// Shared: the block's memory, with `waiter`, `sums`, `delay_seed` and the stamps of the jobs in Table.
// kStampRegisters: 1 for warps 0 to 3, and kByPage for the group, which has three pages of stamps and no registers to
// spare for as many.
template <class Shared, class Table, StampMode kMode, bool kDelays, std::uint32_t kStampRegisters>
struct BlockWarp {
    Shared& shared;
    const sync::Waiter& waiter;
    WarpStamps<Table, kMode, kStampRegisters, kAnyRole, BlockSlots<Table>> stamps;
    std::uint32_t warp;
    std::uint32_t lane;
    sync::RingCursor cursor{};
    std::uint32_t scratch_turn = 0;
    std::uint32_t phase = 0;  // of the group's loop

    __device__ __forceinline__ std::uint32_t block() const { return waiter.block; }
    __device__ __forceinline__ std::uint32_t group_warp() const { return warp - kFirstGroupWarp; }
    __device__ __forceinline__ std::uint32_t group_thread() const { return group_warp() * kLanes + lane; }

    // For warps 1 to 3: a number among them, and stamps of jobs that only warp 3 stamps.
    __device__ __forceinline__ std::uint32_t sending_thread() const { return (warp - 1) * kLanes + lane; }
    __device__ __forceinline__ void begin_sending(Job job) {
        if (warp == kSenderWarp) begin(job);
    }
    __device__ __forceinline__ void next_sending(Job ended, Job begun) {
        if (warp == kSenderWarp) next(ended, begun);
    }
    __device__ __forceinline__ void end_sending(Job job) {
        if (warp == kSenderWarp) end(job);
    }

    // A buffer of 8 KB for the group to exchange values in: all write, meet, and read. Two take turns, so nobody meets
    // before writing: between two uses of one buffer lies the meeting of the other's.
    __device__ __forceinline__ float* scratch() {
        scratch_turn ^= 1u;
        return shared.sums[scratch_turn];
    }

    // At the head of a long loop: what follows from a thread's number is worked out in each round, not kept in
    // registers through all of them.
    __device__ __forceinline__ void forget() { asm volatile("" : "+r"(lane), "+r"(warp), "+r"(phase)); }

    // One job: stamped at both ends. A job that is abandoned has no end, and the trace says so.
    template <std::uint32_t kJob, class Body>
    __device__ __forceinline__ void job(Body body) {
        MUSETRACE_BEGIN(stamps, kJob);
        if constexpr (kDelays) delay(kJob);
        body();
        MUSETRACE_END(stamps, kJob);
    }

    __device__ __forceinline__ void begin(Job job) {
        stamps.stamp(job.slot);
        if constexpr (kDelays) delay(job.site);
    }
    // With nothing between the two jobs: the clock is read once.
    __device__ __forceinline__ void next(Job ended, Job begun) {
        stamps.stamp_both(ended.slot + 1, begun.slot);
        if constexpr (kDelays) delay(begun.site);
    }
    __device__ __forceinline__ void end(Job job) { stamps.stamp(job.slot + 1); }

    // All eight group warps meet. What they wrote to shared memory before is visible to all of them after.
    __device__ __forceinline__ void meet(std::uint32_t) { sync::GpuArch::meet(); }

  private:
    // Up to 4 us, other for every block, warp and job.
    __device__ __forceinline__ void delay(std::uint32_t site) const {
        std::uint32_t hash = (shared.delay_seed + warp * 0xC2B2AE3Du) ^ (site * 0x27D4EB2Fu);
        hash = (hash ^ hash >> 15) * 0x2C1B3C6Du;
        __nanosleep(hash >> 20);
    }
};

template <StampMode kMode, bool kDelays, std::uint32_t kStampRegisters>
using WarpBase = BlockWarp<SharedMemory, MuseHopper, kMode, kDelays, kStampRegisters>;

template <StampMode kMode, bool kDelays, std::uint32_t kStampRegisters>
struct Warp : WarpBase<kMode, kDelays, kStampRegisters> {
    const LayerParams& params;
    const RankParams& rank;  // in shared memory

    __device__ __forceinline__ const Shape& shape() const { return params.shape; }
    __device__ __forceinline__ const Plan& plan() const { return params.plan; }
    __device__ __forceinline__ char* slots(std::uint64_t offset) const { return rank.exchange + offset; }
    // Not by the read-only path: the launch in front may write the state when this one has begun.
    __device__ __forceinline__ std::uint32_t position() const { return params.state->position; }
    // Of a row: below the root, and which rows it sees.
    __device__ __forceinline__ std::uint32_t depth(std::uint32_t row) const { return params.state->depth[row]; }
    __device__ __forceinline__ std::uint32_t sees(std::uint32_t row) const { return params.state->sees[row]; }
};

}  // namespace musetrace::megakernel
