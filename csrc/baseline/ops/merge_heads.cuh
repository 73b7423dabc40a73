// The splits of a head's keys put together, the per-head norm and the gate. A warp for each (head, token): lanes 0-15
// take the even splits, 16-31 the odd ones, four dimensions each.
#pragma once

#include "baseline/launch.cuh"

namespace musetrace::baseline::ops {

using megakernel::kPartFloats;

inline constexpr std::uint32_t kMostSplits = 8;

__device__ __forceinline__ void merge_head(const ChainParams& params, std::uint32_t row) {
    const Shape& s = params.shape;
    const std::uint32_t lane = threadIdx.x % kLanes, side = lane / 16, place = lane % 16, splits = params.plan.splits;
    const std::uint32_t head = row / kTokens, token = row % kTokens;
    wait_for_kernels_before();
    const float* from = scratch<float>(params, params.at.attention) + std::size_t{row} * splits * kPartFloats;
    float4 part[kMostSplits / 2];
    float2 rest[kMostSplits / 2];
    float top = -INFINITY;
#pragma unroll
    for (std::uint32_t i = 0; i < kMostSplits / 2; ++i) {
        const std::uint32_t split = 2 * i + side;
        part[i] = {0.0f, 0.0f, 0.0f, 0.0f};
        rest[i] = {-INFINITY, 0.0f};
        if (split >= splits) continue;
        part[i] = *reinterpret_cast<const float4*>(from + split * kPartFloats + place * 4);
        rest[i] = *reinterpret_cast<const float2*>(from + split * kPartFloats + kHeadDim);
        top = fmaxf(top, rest[i].x);
    }
    const std::uint16_t* gate = params.gate + std::size_t{token} * s.head_columns() + head * kHeadDim + place * 4;
    const uint2 gates = *reinterpret_cast<const uint2*>(gate);
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 16));
    float value[4] = {}, sum = 0.0f;
#pragma unroll
    for (std::uint32_t i = 0; i < kMostSplits / 2; ++i) {
        const float weight = exp2f(rest[i].x - top);
        sum += weight * rest[i].y;
        value[0] += weight * part[i].x;
        value[1] += weight * part[i].y;
        value[2] += weight * part[i].z;
        value[3] += weight * part[i].w;
    }
    sum += __shfl_xor_sync(kAllLanes, sum, 16);
    float squares = 0.0f;
#pragma unroll
    for (float& v : value) {
        v = (v + __shfl_xor_sync(kAllLanes, v, 16)) / sum;
        squares += v * v;
    }
    const float norm = rsqrtf(sum_lanes<16>(squares) / kHeadDim + s.rms_eps);
    const float2 g0 = unpack_bf16(gates.x), g1 = unpack_bf16(gates.y);
    if (side != 0) return;
    const std::uint32_t chunk = head * 2 + place / 8, pair = place * 2 % kChunkWords;
    auto* to = scratch<std::uint32_t>(params, params.at.heads) + (chunk * kTokens + token) * kChunkWords;
    to[pair_place(pair)] = pack_bf16(value[0] * norm * sigmoid(g0.x), value[1] * norm * sigmoid(g0.y));
    to[pair_place(pair + 1)] = pack_bf16(value[2] * norm * sigmoid(g1.x), value[3] * norm * sigmoid(g1.y));
}

}  // namespace musetrace::baseline::ops
