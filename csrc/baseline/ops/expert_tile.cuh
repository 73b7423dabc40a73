// A tile of 64 rows of an expert times up to eight tokens: a block's shared memory, and the loops of the warps that
// multiply. Two row groups of 32 rows times four groups of 128 K, as megakernel/expert_stream.cuh deals them.
#pragma once

#include "baseline/launch.cuh"
#include "megakernel/expert_stream.cuh"

namespace musetrace::baseline::ops {

using megakernel::Bf16Unit;
using megakernel::kGroupK;
using megakernel::kGroupsOfK;
using megakernel::kMaxPairs;
using megakernel::kStepsPerWarp;
using megakernel::kUnitsPerWarp;
using megakernel::MuseHopper;
using megakernel::Nvfp4Unit;

// One stage less than the megakernel has: the blocks of the kernels between the two products find room beside it.
inline constexpr std::uint32_t kExpertStages = 7;
using ExpertRing = sync::GpuRing<kExpertStages, megakernel::kExpertStageBytes, kGroupWarps>;

// Rows of tokens as a ring. 64 bytes more than a row, so that the eight rows of a B fragment lie in both halves of the
// banks.
inline constexpr std::uint32_t kRowSlots = 8;
inline constexpr std::uint32_t kRowBytes = 4096 * 2 + kChunkBytes;

// Sums of one tile: [K group][unit][lane] float4.
inline constexpr std::uint32_t kTileSums = kGroupsOfK * Nvfp4Unit::kUnits * kLanes;

// Warps: weights, rows, sums, then eight that multiply.
inline constexpr std::uint32_t kSingleWarps = 3;
inline constexpr std::uint32_t kExpertThreads = (kSingleWarps + kGroupWarps) * kLanes;

struct ExpertShared {
    ExpertRing ring;
    alignas(128) char rows[kRowSlots * kRowBytes];
    alignas(128) float4 sums[2][kTileSums];
    sync::GpuBarrier rows_full[kRowSlots], rows_empty[kRowSlots];
    sync::GpuBarrier sums_full[2], sums_empty[2];
    std::uint32_t item_count;
    WorkItem items[kMaxPairs];
    alignas(4) std::uint8_t pairs[kMaxPairs];
    sync::Waiter waiters[kSingleWarps + kGroupWarps];  // here, and not in each thread's local memory

    // One thread; then __syncthreads().
    __device__ __forceinline__ void init() {
        for (std::uint32_t slot = 0; slot < kRowSlots; ++slot) {
            rows_full[slot].init(1);
            rows_empty[slot].init(kGroupWarps);
        }
        for (std::uint32_t buffer = 0; buffer < 2; ++buffer) {
            sums_full[buffer].init(kGroupWarps);
            sums_empty[buffer].init(1);
        }
        ring.init();  // with the fence
    }
};
static_assert(sizeof(ExpertShared) <= 220'000);

struct ExpertWarp {
    ExpertShared& shared;
    const sync::Waiter& waiter;
    std::uint32_t warp;
    std::uint32_t lane;
    std::uint32_t site;
    sync::RingCursor cursor{};

    __device__ __forceinline__ std::uint32_t k_group() const { return warp % kGroupsOfK; }
    __device__ __forceinline__ std::uint32_t row_group() const { return warp / kGroupsOfK; }
    // Of the row that is the lane's column.
    __device__ __forceinline__ const char* own_x(const char* row) const {
        return row + lane % 4 * kLoadBytes + k_group() * kGroupK * 2;
    }
};

using TileSums = float[kUnitsPerWarp][4];

// Stages that are too narrow for this warp's K group.
__device__ __forceinline__ void give_back(ExpertWarp& w, std::uint32_t stages) {
#pragma unroll 1
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
        w.shared.ring.wait_full(w.waiter, w.site, w.cursor);
        w.shared.ring.mark_empty(w.cursor);
    }
}

// A stage is one unit: its row group works, the other gives it back.
__device__ __forceinline__ void multiply_bf16(ExpertWarp& w, std::uint32_t k, const char* row, TileSums& sums) {
    const std::uint32_t stage = megakernel::stage_k(k), first = w.k_group() * kStepsPerWarp;
    const char* x = w.own_x(row);
#pragma unroll
    for (std::uint32_t unit = 0; unit < Nvfp4Unit::kUnits; ++unit) {
        const bool mine = w.k_group() * kGroupK < stage && unit / kUnitsPerWarp == w.row_group();
#pragma unroll 1
        for (std::uint32_t at = 0; at < k; at += stage) {
            const char* weights = w.shared.ring.wait_full(w.waiter, w.site, w.cursor);
            if (mine) {
                float (&own)[4] = sums[unit % kUnitsPerWarp];
#pragma unroll
                for (std::uint32_t step = 0; step < kStepsPerWarp; step += 2) {
                    const uint4 b = *reinterpret_cast<const uint4*>(x + at * 2 + step / 2 * kChunkBytes);
                    megakernel::multiply_add(own, megakernel::load_bf16(weights, first + step, w.lane), b.x, b.y);
                    megakernel::multiply_add(own, megakernel::load_bf16(weights, first + step + 1, w.lane), b.z, b.w);
                }
            }
            w.shared.ring.mark_empty(w.cursor);
        }
    }
}

// For the warp that finishes: tile `number` of the block.
__device__ __forceinline__ void leave_sums(ExpertWarp& w, std::uint32_t number, const TileSums& sums) {
    const std::uint32_t buffer = number % 2;
    w.shared.sums_empty[buffer].wait_parity(w.waiter, w.site, (number / 2 % 2) ^ 1u);
#pragma unroll
    for (std::uint32_t unit = 0; unit < kUnitsPerWarp; ++unit) {
        const std::uint32_t place = w.k_group() * Nvfp4Unit::kUnits + w.row_group() * kUnitsPerWarp + unit;
        w.shared.sums[buffer][place * kLanes + w.lane] = {sums[unit][0], sums[unit][1], sums[unit][2], sums[unit][3]};
    }
    __syncwarp();
    if (w.lane == 0) w.shared.sums_full[buffer].arrive();
}

// Of all K groups, in their order.
__device__ __forceinline__ float4 unit_sum(const ExpertShared& shared, std::uint32_t buffer, std::uint32_t unit,
                                           std::uint32_t lane, float factor) {
    float4 total{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (std::uint32_t k_group = 0; k_group < kGroupsOfK; ++k_group) {
        const float4 part = shared.sums[buffer][(k_group * Nvfp4Unit::kUnits + unit) * kLanes + lane];
        total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
    }
    return {total.x * factor, total.y * factor, total.z * factor, total.w * factor};
}

// The pair of rows (g, g ^ 1) that this lane keeps, lower row first, of values for columns 2 t and 2 t + 1.
__device__ __forceinline__ float2 exchange_rows(std::uint32_t lane, float first, float second) {
    const bool odd = lane / 4 % 2 != 0;
    const float other = __shfl_xor_sync(kAllLanes, odd ? first : second, 4);
    return odd ? float2{other, second} : float2{first, other};
}

}  // namespace musetrace::baseline::ops
