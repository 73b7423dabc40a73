// Behind the projection: its slices of K summed, q/k norm, RoPE, and the KV write. A warp for each (head, token); a
// lane has dimensions `lane` and `lane` + 32, which the rotary embedding turns together.
#pragma once

#include "baseline/launch.cuh"

namespace musetrace::baseline::ops {

inline constexpr std::uint32_t kMostQkvSlices = 8;

struct HeadRow {
    float low, high;
};

__device__ __forceinline__ HeadRow sum_qkv_slices(const ChainParams& params, std::uint32_t unit, std::uint32_t token,
                                                  std::uint32_t lane) {
    const std::uint32_t rows = params.shape.qkv_units() * kHeadDim;
    const float* from = scratch<float>(params, params.at.qkv) + std::size_t{token} * rows + unit * kHeadDim + lane;
    HeadRow part[kMostQkvSlices];
#pragma unroll
    for (std::uint32_t slice = 0; slice < kMostQkvSlices; ++slice) {
        part[slice] = {0.0f, 0.0f};
        if (slice >= params.plan.qkv_slices) continue;
        const float* at = from + std::size_t{slice} * kTokens * rows;
        part[slice] = {at[0], at[32]};
    }
    HeadRow row{0.0f, 0.0f};
#pragma unroll
    for (const HeadRow& one : part) row = {row.low + one.low, row.high + one.high};
    return row;
}

// `kBatch`: the rows are those of params.rows.
template <bool kBatch>
__device__ __forceinline__ void finish_qkv_row(const ChainParams& params, std::uint32_t item) {
    const Shape& s = params.shape;
    const std::uint32_t lane = threadIdx.x % kLanes, unit = item / kTokens, token = item % kTokens;
    const std::uint32_t position = kBatch ? params.rows->position[token] : params.state->position + token;
    const std::size_t cache = kBatch ? params.cache_of(params.rows->sequence[token]) : 0;
    const std::uint32_t q = s.q_heads, kv = s.kv_heads;
    const bool query = unit < q, key = !query && unit < q + kv, value = !query && !key && unit < q + 2 * kv;
    const bool turns = (query || key) && !params.next_global_attention;
    const float2 turn = turns ? load_pair(params.rope, (std::size_t{position} * 32 + lane) * 2) : float2{1.0f, 0.0f};
    wait_for_kernels_before();
    auto [low, high] = sum_qkv_slices(params, unit, token, lane);
    if (query || key) {
        const float squares = sum_lanes<kLanes>(low * low + high * high);
        const float scale = rsqrtf(squares / kHeadDim + s.rms_eps) * (query ? s.qk_scale : 1.0f);
        low *= scale;
        high *= scale;
    }
    if (turns) {
        // By halves: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), as transformers' rotate_half does.
        const float x1 = low, x2 = high;
        low = x1 * turn.x - x2 * turn.y;
        high = x2 * turn.x + x1 * turn.y;
    }
    std::uint16_t* to;
    std::size_t step = 32;
    if (key) {
        to = params.next_k + cache + (std::size_t{unit - q} * s.capacity + position) * kHeadDim + lane;
    } else if (value) {
        to = params.next_v + cache + (std::size_t{unit - q - kv} * kHeadDim + lane) * s.capacity + position;
        step = std::size_t{32} * s.capacity;
    } else {
        const std::uint32_t head = query ? unit : unit - q - 2 * kv;
        to =
            (query ? params.next_q : params.next_gate) + std::size_t{token} * s.head_columns() + head * kHeadDim + lane;
    }
    to[0] = __bfloat16_as_ushort(__float2bfloat16_rn(low));
    to[step] = __bfloat16_as_ushort(__float2bfloat16_rn(high));
}

}  // namespace musetrace::baseline::ops
