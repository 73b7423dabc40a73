// Behind lm_head: its slices of K summed, the multiplier and the soft cap.
#pragma once

#include "baseline/launch.cuh"

namespace musetrace::baseline::ops {

inline constexpr std::uint32_t kMostHeadSlices = 4;

// Thread: four logits of a token, as far as there are so many.
__device__ __forceinline__ void finish_logits(const ChainParams& params, std::uint32_t token, std::uint32_t row) {
    const Shape& s = params.shape;
    const std::size_t rows = padded_vocab(s);
    wait_for_kernels_before();
    if (row >= s.vocab) return;
    const float* from = scratch<float>(params, params.at.head) + token * rows + row;
    float4 part[kMostHeadSlices];
#pragma unroll
    for (std::uint32_t slice = 0; slice < kMostHeadSlices; ++slice) {
        part[slice] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (slice < params.plan.head_slices)
            part[slice] = *reinterpret_cast<const float4*>(from + slice * kTokens * rows);
    }
    float sum[4] = {};
#pragma unroll
    for (const float4& one : part) {
        sum[0] += one.x;
        sum[1] += one.y;
        sum[2] += one.z;
        sum[3] += one.w;
    }
    float* to = params.logits + std::size_t{token} * s.vocab + row;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
        if (row + i < s.vocab) to[i] = tanhf(sum[i] * s.output_multiplier / s.softcap) * s.softcap;
    }
}

}  // namespace musetrace::baseline::ops
