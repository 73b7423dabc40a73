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

// Half of what a warp takes of a stage: four fragments of each of its units.
inline constexpr std::uint32_t kHalfSteps = kStepsPerWarp / 2;
struct HalfShare {
    uint2 scales[kUnitsPerWarp];  // two fragments in each word
    uint4 codes[kUnitsPerWarp];   // one in each
    static_assert(kHalfSteps == 4);
};

// A consumer warp's stages, read half a stage ahead: when the fragments of a half are made, its registers take the same
// half of the next stage, so that neither the wait for a stage nor the reads of it stand between two products. `warp`
// counts the consumer warps: its row group is warp / 4, its K group warp % 4.
template <class Ring>
class StageReader {
  public:
    __device__ __forceinline__ StageReader(Ring& ring, const sync::Waiter& waiter, std::uint32_t site,
                                           std::uint32_t k_of_stage, std::uint32_t warp, std::uint32_t lane)
        : ring_(ring), waiter_(waiter), site_(site), k_of_stage_(k_of_stage), warp_(warp), lane_(lane) {}

    // The first stage; then take_stage() for each.
    __device__ __forceinline__ void start(sync::RingCursor& cursor) {
        const char* stage = ring_.wait_full(waiter_, site_, cursor);
        load(stage, 0);
        load(stage, 1);
        ring_.mark_empty(cursor);
    }

    // take(half, share, then) for both halves of a stage; it calls then() when it has made all fragments of the half
    // and still has products to do, so that none of them is waited for at a branch. `kMore`: there is a stage behind
    // it, which is read meanwhile.
    template <bool kMore, class Take>
    __device__ __forceinline__ void take_stage(sync::RingCursor& cursor, Take take) {
        const bool landed = kMore && ring_.is_full(cursor);
        take(0, halves_[0], [&] {
            if constexpr (kMore) {
                if (!landed) ring_.wait_full(waiter_, site_, cursor);
                load(ring_.bytes[cursor.stage], 0);
            }
        });
        take(1, halves_[1], [&] {
            if constexpr (kMore) {
                load(ring_.bytes[cursor.stage], 1);
                ring_.mark_empty(cursor);
            }
        });
    }

  private:
    __device__ __forceinline__ void load(const char* stage, std::uint32_t half) {
        const std::uint32_t k_group = warp_ % kGroupsOfK;
#pragma unroll
        for (std::uint32_t i = 0; i < kUnitsPerWarp; ++i) {
            const char* unit = stage + (warp_ / kGroupsOfK * kUnitsPerWarp + i) * Nvfp4Unit::bytes(k_of_stage_);
            halves_[half].scales[i] = load_half_scales(unit, k_of_stage_, k_group, half, lane_);
            halves_[half].codes[i] = load_codes(unit, 2 * k_group + half, lane_);
        }
    }

    Ring& ring_;
    const sync::Waiter& waiter_;
    std::uint32_t site_;
    std::uint32_t k_of_stage_;
    std::uint32_t warp_;
    std::uint32_t lane_;
    HalfShare halves_[2] = {};  // not left undefined: what may be read before it is written is live in all code before
};

// The A fragments of two steps of a half, 0 and 1 or 2 and 3.
struct PairFragments {
    AFragment a[kUnitsPerWarp][2];

    __device__ __forceinline__ PairFragments(const HalfShare& share, std::uint32_t step, std::uint32_t factor) {
#pragma unroll
        for (std::uint32_t unit = 0; unit < kUnitsPerWarp; ++unit) {
            const uint2 scale = share.scales[unit];
            const uint4 code = share.codes[unit];
            const std::uint32_t scales = step == 0 ? scale.x : scale.y;
            a[unit][0] = dequantize(step == 0 ? code.x : code.z, expand_scales<false>(scales, factor));
            a[unit][1] = dequantize(step == 0 ? code.y : code.w, expand_scales<true>(scales, factor));
        }
    }

    // `b`: two steps of 8 tokens.
    __device__ __forceinline__ void multiply(const uint4& b, float (&sums)[kUnitsPerWarp][4]) const {
#pragma unroll
        for (std::uint32_t unit = 0; unit < kUnitsPerWarp; ++unit) multiply_add(sums[unit], a[unit][0], b.x, b.y);
#pragma unroll
        for (std::uint32_t unit = 0; unit < kUnitsPerWarp; ++unit) multiply_add(sums[unit], a[unit][1], b.z, b.w);
    }
};

// sums[unit] += half a stage times 8 tokens. tokens(i): those of steps 2 i and 2 i + 1 of the half. then() comes before
// the last products.
template <class Tokens, class Then>
__device__ __forceinline__ void multiply_half(const HalfShare& share, std::uint32_t factor, Tokens tokens,
                                              float (&sums)[kUnitsPerWarp][4], Then then) {
    const uint4 first = tokens(0), second = tokens(1);
    PairFragments(share, 0, factor).multiply(first, sums);
    const PairFragments last(share, 2, factor);
    then();
    last.multiply(second, sums);
}

// A tile: sums += `stages` stages times 8 tokens. `x`: the lane's bytes of its token's row, at its K group. `another`:
// a tile behind it, whose first stage is read during this one's last.
template <class Ring>
__device__ __forceinline__ void multiply_tile(StageReader<Ring>& reader, sync::RingCursor& cursor, std::uint32_t factor,
                                              const char* x, std::uint32_t k_of_stage, std::uint32_t stages,
                                              bool another, float (&sums)[kUnitsPerWarp][4]) {
    const auto take = [&](std::uint32_t half, const HalfShare& share, auto then) {
        const char* from = x + half * kHalfSteps / 2 * kChunkBytes;
        multiply_half(
            share, factor, [&](std::uint32_t i) { return *reinterpret_cast<const uint4*>(from + i * kChunkBytes); },
            sums, then);
    };
#pragma unroll 1
    for (std::uint32_t left = stages - (another ? 0 : 1); left != 0; --left, x += k_of_stage * 2) {
        reader.template take_stage<true>(cursor, take);
    }
    if (!another) reader.template take_stage<false>(cursor, take);
}

}  // namespace musetrace::megakernel
