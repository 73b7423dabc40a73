// The inner loop of the experts: stages of 64 rows x 512 K through the ring, made bf16 and multiplied by 8 tokens under
// the stream of their own bytes.
//
// 8 consumer warps = 2 groups of 32 rows (2 units) x 4 groups of 128 K. A warp's share of a stage is 16 words of codes
// a lane, with 4 LDS.128 for codes, 2 for scales and 4 for tokens; two units for each B fragment, for one would read
// more bytes of tokens than of weights.
#pragma once

#include <cstdint>

#include "megakernel/dequant.cuh"
#include "megakernel/geometry.h"
#include "sync/gpu_ring.cuh"

namespace musetrace::megakernel {

inline constexpr std::uint32_t kConsumerWarps = 8;
inline constexpr std::uint32_t kGroupsOfK = 4;
inline constexpr std::uint32_t kUnitsPerWarp = 2;
inline constexpr std::uint32_t kGroupK = kMaxStageK / kGroupsOfK;
inline constexpr std::uint32_t kStepsPerWarp = kGroupK / kFragmentK;
static_assert(kGroupK == Nvfp4Unit::kScaleLoadK, "a warp's scales of a unit are one load");
static_assert(kConsumerWarps / kGroupsOfK * kUnitsPerWarp == Nvfp4Unit::kUnits);

inline constexpr std::uint32_t kExpertStageBytes = Nvfp4Unit::kUnits * Nvfp4Unit::bytes(kMaxStageK);
inline constexpr std::uint32_t kExpertRingStages = 8;
using ExpertRing = sync::GpuRing<kExpertRingStages, kExpertStageBytes, kConsumerWarps>;

// B fragments of 8 tokens in shared memory, two of them (32 k) in each 16 bytes of a lane.
inline constexpr std::uint32_t kTokenLoadK = 2 * kFragmentK;

constexpr std::uint32_t token_bytes(std::uint32_t k) { return kExpertTokens * k * 2; }

// By `threads` threads, of which the caller is number `thread`: tokens bf16 [8][k] in global memory to fragments.
__device__ __forceinline__ void store_tokens(uint4* fragments, const std::uint32_t* tokens, std::uint32_t k,
                                             std::uint32_t thread, std::uint32_t threads) {
    for (std::uint32_t i = thread; i < k / kTokenLoadK * kLanes; i += threads) {
        const std::uint32_t lane = i % kLanes;
        const std::uint32_t* pairs = tokens + (lane / 4 * k + i / kLanes * kTokenLoadK) / 2 + lane % 4;
        fragments[i] = {pairs[0], pairs[4], pairs[8], pairs[12]};
    }
}

// What a warp takes of a stage.
struct StageShare {
    uint4 scales[kUnitsPerWarp];
    uint4 codes[kUnitsPerWarp][kStepsPerWarp / 4];

    __device__ __forceinline__ std::uint32_t code_word(std::uint32_t unit, std::uint32_t step) const {
        return word(codes[unit][step / 4], step % 4);
    }
    __device__ __forceinline__ std::uint32_t scale_word(std::uint32_t unit, std::uint32_t step) const {
        return word(scales[unit], step / 2);
    }

  private:
    static __device__ __forceinline__ std::uint32_t word(const uint4& words, std::uint32_t i) {
        return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
    }
};

// `warp` counts the consumer warps: its row group is warp / 4, its K group warp % 4.
__device__ __forceinline__ StageShare load_share(const char* stage, std::uint32_t k_of_stage, std::uint32_t warp,
                                                 std::uint32_t lane) {
    StageShare share;
    const std::uint32_t k_group = warp % kGroupsOfK;
#pragma unroll
    for (std::uint32_t i = 0; i < kUnitsPerWarp; ++i) {
        const std::uint32_t index = warp / kGroupsOfK * kUnitsPerWarp + i;
        const char* unit = stage + index * Nvfp4Unit::bytes(k_of_stage);
        share.scales[i] = load_scales(unit, k_of_stage, k_group, lane);
#pragma unroll
        for (std::uint32_t load = 0; load < kStepsPerWarp / 4; ++load) {
            share.codes[i][load] = load_codes(unit, kStepsPerWarp / 4 * k_group + load, lane);
        }
    }
    return share;
}

// Calls take(unit, step, fragment) for every A fragment of the share; before_pair(step) comes before those of steps
// `step` and `step` + 1.
template <class BeforePair, class Take>
__device__ __forceinline__ void dequantize_share(const StageShare& share, std::uint32_t factor, BeforePair before_pair,
                                                 Take take) {
#pragma unroll
    for (std::uint32_t step = 0; step < kStepsPerWarp; step += 2) {
        before_pair(step);
#pragma unroll
        for (std::uint32_t unit = 0; unit < kUnitsPerWarp; ++unit) {
            const std::uint32_t scales = share.scale_word(unit, step);
            take(unit, step, dequantize(share.code_word(unit, step), expand_scales<false>(scales, factor)));
            take(unit, step + 1, dequantize(share.code_word(unit, step + 1), expand_scales<true>(scales, factor)));
        }
    }
}

// The loop of a consumer warp: `stages` stages of the ring. take(share) runs after the stage is given back.
template <class Take>
__device__ __forceinline__ void take_stages(ExpertRing& ring, const sync::Waiter& waiter, std::uint32_t site,
                                            sync::RingCursor& cursor, std::uint32_t stages, std::uint32_t warp,
                                            Take take) {
    const std::uint32_t lane = sync::lane_id();
#pragma unroll 1
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
        const StageShare share = load_share(ring.wait_full(waiter, site, cursor), kMaxStageK, warp, lane);
        ring.mark_empty(cursor);
        take(share);
    }
}

// take() of a row block whose K is `k_stages` stages: sums[unit] += share times tokens. Restarts at the first K with
// every row block.
struct MultiplyShare {
    __device__ __forceinline__ MultiplyShare(const uint4* fragments, std::uint32_t k_stages, std::uint32_t warp,
                                             std::uint32_t factor)
        : first_(fragments + warp % kGroupsOfK * (kGroupK / kTokenLoadK) * kLanes + sync::lane_id()),
          k_stages_(k_stages),
          factor_(factor) {}

    __device__ __forceinline__ void operator()(const StageShare& share, float (&sums)[kUnitsPerWarp][4]) {
        const uint4* fragments = first_ + k_stage_ * (kMaxStageK / kTokenLoadK) * kLanes;
        uint4 b;
        dequantize_share(
            share, factor_, [&](std::uint32_t step) { b = fragments[step / 2 * kLanes]; },
            [&](std::uint32_t unit, std::uint32_t step, const AFragment& a) {
                multiply_add(sums[unit], a, step % 2 == 0 ? b.x : b.z, step % 2 == 0 ? b.y : b.w);
            });
        if (++k_stage_ == k_stages_) k_stage_ = 0;
    }

  private:
    const uint4* first_;
    std::uint32_t k_stages_;
    std::uint32_t factor_;
    std::uint32_t k_stage_ = 0;
};

}  // namespace musetrace::megakernel
