// The gathers between ranks. A rank's own part goes to its place at every rank; all of these places are the rank's own
// here.
#pragma once

#include "baseline/launch.cuh"

namespace musetrace::baseline::ops {

inline constexpr std::uint32_t kMostPoolSlices = 16;

// Pooler and router: the slices of K are summed on the way. Thread `item`: two pooled rows of a token, or a router row
// of a token.
__device__ __forceinline__ std::uint32_t pooled_pairs(const Shape& s) { return kTokens * s.pooled_rows() / 2; }

__device__ __forceinline__ void gather_pooled(const ChainParams& params, std::uint32_t item) {
    const Shape& s = params.shape;
    const std::uint32_t slices = params.plan.pool_slices, half = s.pooled_rows() / 2;
    const std::uint32_t token = item / half, pair = item % half;
    float2 part[kMostPoolSlices];
#pragma unroll
    for (std::uint32_t slice = 0; slice < kMostPoolSlices; ++slice) {
        part[slice] = {0.0f, 0.0f};
        if (slice >= slices) continue;
        part[slice] = load_pair(scratch<float>(params, params.at.pool),
                                (std::size_t{slice} * kTokens + token) * s.pooled_rows() + 2 * pair);
    }
    float2 sum{0.0f, 0.0f};
#pragma unroll
    for (const float2& one : part) sum = {sum.x + one.x, sum.y + one.y};
    const std::uint32_t word = pack_bf16(sum.x, sum.y);
    auto* row = scratch<std::uint32_t>(params, params.at.pooled) + std::size_t{token} * s.moe_hidden / 2;
    for (std::uint32_t place = 0; place < s.ranks; ++place) {
        const std::uint32_t column = place * s.pooled_rows() + 2 * pair;
        row[column / kChunkK * kChunkWords + pair_place(column % kChunkK / 2)] = word;
    }
}

__device__ __forceinline__ void gather_logits(const ChainParams& params, std::uint32_t item) {
    const Shape& s = params.shape;
    const std::uint32_t slices = params.plan.pool_slices, row = item / kTokens, token = item % kTokens;
    if (row >= s.router_rows()) return;
    const float* from = scratch<float>(params, params.at.router) + item;
    float part[kMostPoolSlices];
#pragma unroll
    for (std::uint32_t slice = 0; slice < kMostPoolSlices; ++slice) {
        part[slice] = slice < slices ? from[std::size_t{slice} * s.router_rows() * kTokens] : 0.0f;
    }
    float sum = 0.0f;
#pragma unroll
    for (const float one : part) sum += one;
    float* logits = scratch<float>(params, params.at.logits) + std::size_t{token} * s.experts + row;
    for (std::uint32_t place = 0; place < s.ranks; ++place) logits[place * s.router_rows()] = sum;
}

// 16 bytes of a pair's features.
__device__ __forceinline__ void gather_features(const ChainParams& params, std::uint32_t word) {
    const Shape& s = params.shape;
    const std::uint32_t words = s.features() * 2 / kLoadBytes;
    if (word >= s.pairs() * words) return;
    const uint4 value = scratch<uint4>(params, params.at.own_features)[word];
    uint4* to = scratch<uint4>(params, params.at.features) +
                std::size_t{word / words} * s.intermediate * 2 / kLoadBytes + word % words;
    for (std::uint32_t place = 0; place < s.ranks; ++place) to[place * words] = value;
}

// Sums of squares, [pair][tile] of every rank.
__device__ __forceinline__ void gather_squares(const ChainParams& params, std::uint32_t i) {
    const Shape& s = params.shape;
    const std::uint32_t count = s.pairs() * megakernel::ExpertTiles(s).gemm2;
    if (i >= count) return;
    const float value = scratch<float>(params, params.at.own_squares)[i];
    float* to = scratch<float>(params, params.at.squares) + i;
    for (std::uint32_t place = 0; place < s.ranks; ++place) to[place * count] = value;
}

}  // namespace musetrace::baseline::ops
