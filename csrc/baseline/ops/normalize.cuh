// The norm of a pooled row: the experts' input. A block has a token.
#pragma once

#include "baseline/launch.cuh"

namespace musetrace::baseline::ops {

inline constexpr std::uint32_t kRouteThreads = 256;
inline constexpr std::uint32_t kRouteWarps = kRouteThreads / kLanes;

// A thread's words of the row, at most 4096 columns.
struct PooledWords {
    static constexpr std::uint32_t kLoads = 2;
    float2 weight[kLoads][4];
    uint4 words[kLoads];

    static __device__ __forceinline__ std::uint32_t index(std::uint32_t i) { return threadIdx.x + i * kRouteThreads; }
    __device__ __forceinline__ float2 value(std::uint32_t i, std::uint32_t q) const {
        return unpack_bf16(q == 0 ? words[i].x : q == 1 ? words[i].y : q == 2 ? words[i].z : words[i].w);
    }
};

__device__ __forceinline__ void normalize_row(const ChainParams& params, std::uint32_t token,
                                              float (&parts)[kRouteWarps]) {
    const Shape& s = params.shape;
    const std::uint32_t loads = s.moe_hidden * 2 / kLoadBytes;
    PooledWords row;
#pragma unroll
    for (std::uint32_t i = 0; i < PooledWords::kLoads; ++i) {
        const std::uint32_t index = PooledWords::index(i);
#pragma unroll
        for (std::uint32_t q = 0; q < 4; ++q) {
            row.weight[i][q] = {0.0f, 0.0f};
            if (index >= loads) continue;
            row.weight[i][q] = load_pair(params.layer.pre_expert_norm, index / 4 * kChunkK + index % 4 * 2 + q * 8);
        }
    }
    wait_for_kernels_before();
    const uint4* from = scratch<uint4>(params, params.at.pooled) + std::size_t{token} * loads;
    float squares = 0.0f;
#pragma unroll
    for (std::uint32_t i = 0; i < PooledWords::kLoads; ++i) {
        row.words[i] = {0, 0, 0, 0};
        if (PooledWords::index(i) < loads) row.words[i] = from[PooledWords::index(i)];
#pragma unroll
        for (std::uint32_t q = 0; q < 4; ++q) {
            const float2 v = row.value(i, q);
            squares += v.x * v.x + v.y * v.y;
        }
    }
    squares = sum_lanes<kLanes>(squares);
    if (threadIdx.x % kLanes == 0) parts[threadIdx.x / kLanes] = squares;
    __syncthreads();
    squares = 0.0f;
#pragma unroll
    for (const float part : parts) squares += part;
    const float norm = rsqrtf(squares / static_cast<float>(s.moe_hidden) + s.rms_eps);
    uint4* to = scratch<uint4>(params, params.at.expert_x) + std::size_t{token} * loads;
#pragma unroll
    for (std::uint32_t i = 0; i < PooledWords::kLoads; ++i) {
        if (PooledWords::index(i) >= loads) continue;
        std::uint32_t word[4];
#pragma unroll
        for (std::uint32_t q = 0; q < 4; ++q) {
            const float2 v = row.value(i, q), weight = row.weight[i][q];
            word[q] = pack_bf16(v.x * norm * weight.x, v.y * norm * weight.y);
        }
        to[PooledWords::index(i)] = {word[0], word[1], word[2], word[3]};
    }
}

}  // namespace musetrace::baseline::ops
