// Post-expert norm of each (token, expert) and the weighted sum, of the columns that are the rank's: those its unpooler
// reads. A block has a token and 64 columns, a warp one of the token's experts.
#pragma once

#include "baseline/launch.cuh"

namespace musetrace::baseline::ops {

using megakernel::kTileColumns;

inline constexpr std::uint32_t kCombineWarps = 8;  // the most experts of a token

using CombineShared = float2[kCombineWarps][kLanes];

// Over the pair's whole row, all ranks' tiles in a fixed order; at most 64 of them.
__device__ __forceinline__ float row_squares(const ChainParams& params, std::uint32_t pair, std::uint32_t lane) {
    const Shape& s = params.shape;
    const std::uint32_t tiles = megakernel::ExpertTiles(s).gemm2, count = s.ranks * tiles;
    const float* squares = scratch<float>(params, params.at.squares);
    float sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
        const std::uint32_t index = lane + i * kLanes;
        if (index >= count) continue;
        sum[i] = squares[(std::size_t{index / tiles} * s.pairs() + pair) * tiles + index % tiles];
    }
    return sum_lanes<kLanes>(sum[0] + sum[1]);
}

__device__ __forceinline__ void combine(const ChainParams& params, CombineShared& shared) {
    const Shape& s = params.shape;
    const std::uint32_t warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    const std::uint32_t token = blockIdx.x % kTokens, part = blockIdx.x / kTokens;
    // A lane has a word of one of the part's two chunks. The rank's columns are those of rank 0: peers are played by
    // it.
    const std::uint32_t column = lane / kChunkWords * kChunkK + 2 * pair_place(lane % kChunkWords);
    const float2 scale = load_pair(params.layer.post_expert_norm, part * kTileColumns + column);
    wait_for_kernels_before();
    if (warp < s.top_k) {
        const std::uint32_t pair = token * s.top_k + warp;
        const auto* row = scratch<std::uint32_t>(params, params.at.outputs) + std::size_t{pair} * s.pooled_rows() / 2;
        const float2 y = unpack_bf16(row[part * kLanes + lane]);
        const float weight = scratch<WorkList>(params, params.at.list)->weights[pair];
        const float norm = rsqrtf(row_squares(params, pair, lane) / static_cast<float>(s.moe_hidden) + s.post_eps);
        shared[warp][lane] = {round_bf16(scale.x * y.x) * norm * weight, round_bf16(scale.y * y.y) * norm * weight};
    }
    __syncthreads();
    if (warp != 0) return;
    float2 sum{0.0f, 0.0f};
#pragma unroll 1
    for (std::uint32_t place = 0; place < s.top_k; ++place) {
        const float2 value = shared[place][lane];
        sum = {sum.x + value.x, sum.y + value.y};
    }
    const std::uint32_t chunk = part * 2 + lane / kChunkWords;
    scratch<std::uint32_t>(params, params.at.combined)[(chunk * kTokens + token) * kChunkWords + lane % kChunkWords] =
        pack_bf16(sum.x, sum.y);
}

}  // namespace musetrace::baseline::ops
