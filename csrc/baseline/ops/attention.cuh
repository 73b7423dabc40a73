// Attention of 16 new tokens over the KV cache. A block is a query head, a split of its keys and a sequence; its eight
// warps share the keys in runs of 32 and merge. The arithmetic, and the order of keys and dimensions in the matrix
// instructions, are those of megakernel/ops/attention.cuh.
#pragma once

#include "baseline/launch.cuh"
#include "megakernel/ops/online_softmax.cuh"

namespace musetrace::baseline::ops {

using megakernel::kPartFloats;
using megakernel::multiply_add;
using megakernel::ops::first_run_of;
using megakernel::ops::kKeyRun;
using megakernel::ops::SplitWeights;

inline constexpr std::uint32_t kAttentionWarps = 8;

// What one lane has of a run.
struct KeyRun {
    uint4 keys[4][2];
    uint4 values[8];
};

using AttentionState = megakernel::ops::OnlineSoftmax<kHeadDim>;

// Where the rows of a block's sequence stand, and its part of the cache.
struct SequenceRows {
    std::uint32_t lowest, end;  // first position, and the one behind the last
    std::uint32_t token[2];     // positions of the lane's rows, g and g + 8
    std::size_t cache;          // numbers in front of its keys and values
};

// A row of another sequence sees no key: nothing is within reach of there.
inline constexpr std::uint32_t kNowhere = ~0u;

__device__ __forceinline__ SequenceRows chain_rows(const ChainParams& params, std::uint32_t lane) {
    const std::uint32_t position = params.state->position;
    return {position, position + kTokens, {position + lane / 4, position + lane / 4 + 8}, 0};
}

// With none of the rows, `end` is 0.
__device__ __forceinline__ SequenceRows batch_rows(const ChainParams& params, std::uint32_t sequence,
                                                   std::uint32_t lane) {
    SequenceRows rows{kNowhere, 0, {kNowhere, kNowhere}, params.cache_of(sequence)};
#pragma unroll
    for (std::uint32_t row = 0; row < kTokens; ++row) {
        if (params.rows->sequence[row] != sequence) continue;
        const std::uint32_t position = params.rows->position[row];
        rows.lowest = min(rows.lowest, position);
        rows.end = max(rows.end, position + 1);
        if (row % 8 == lane / 4) rows.token[row / 8] = position;
    }
    return rows;
}

struct AttentionWarp {
    const ChainParams& params;
    std::uint32_t head, split, warp, lane;
    SequenceRows rows;
    std::uint32_t reach;

    // Past L1: a block reads a row once, and neighbours of it may be written while this kernel loads.
    __device__ __forceinline__ void load(std::uint32_t key0, KeyRun& run) const {
        const Shape& s = params.shape;
        const std::uint32_t g = lane / 4, t = lane % 4, kv = head / (s.q_heads / s.kv_heads);
        // Column g of score tile j is key 8 (g / 2) + 2 j + g % 2, so that a lane's scores are keys 8 t to 8 t + 7.
        const std::uint16_t* key_row = params.k + rows.cache + (std::size_t{kv} * s.capacity + key0) * kHeadDim + t * 8;
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
            const std::uint16_t* row = key_row + (g / 2 * 8 + 2 * j + g % 2) * kHeadDim;
            run.keys[j][0] = __ldcg(reinterpret_cast<const uint4*>(row));
            run.keys[j][1] = __ldcg(reinterpret_cast<const uint4*>(row + 32));
        }
        const std::uint16_t* value_row =
            params.v + rows.cache + (std::size_t{kv} * kHeadDim + g) * s.capacity + key0 + t * 8;
#pragma unroll
        for (std::uint32_t n = 0; n < 8; ++n) {
            run.values[n] = __ldcg(reinterpret_cast<const uint4*>(value_row + std::size_t{n} * 8 * s.capacity));
        }
    }

    // The cache behind the last token may hold anything; a weight of zero does not hide what is no number.
    __device__ __forceinline__ void clear_behind(std::uint32_t key0, std::uint32_t end, KeyRun& run) const {
        const std::uint32_t first = key0 + lane % 4 * 8;
        std::uint32_t mask[4];
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            mask[i] = (first + 2 * i < end ? 0x0000FFFFu : 0u) | (first + 2 * i + 1 < end ? 0xFFFF0000u : 0u);
        }
#pragma unroll
        for (uint4& value : run.values) {
            value = {value.x & mask[0], value.y & mask[1], value.z & mask[2], value.w & mask[3]};
        }
    }

    __device__ __forceinline__ void take(std::uint32_t key0, const KeyRun& run, const uint4 (&query)[2][2],
                                         AttentionState& state) const {
        float scores[4][4] = {};
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
#pragma unroll
            for (std::uint32_t h = 0; h < 2; ++h) {
                const uint4 &low = query[h][0], &high = query[h][1], &key = run.keys[j][h];
                multiply_add(scores[j], {{low.x, high.x, low.y, high.y}}, key.x, key.y);
                multiply_add(scores[j], {{low.z, high.z, low.w, high.w}}, key.z, key.w);
            }
        }
        soften(key0, 0, scores, state);
        soften(key0, 1, scores, state);
#pragma unroll
        for (std::uint32_t u = 0; u < 2; ++u) {
            const SplitWeights weights(scores, u);
#pragma unroll
            for (std::uint32_t n = 0; n < 8; ++n) {
                const uint4& value = run.values[n];
                const std::uint32_t b0 = u == 0 ? value.x : value.z, b1 = u == 0 ? value.y : value.w;
                multiply_add(state.output[n], weights.high, b0, b1);
                multiply_add(state.output[n], weights.low, b0, b1);
            }
        }
    }

  private:
    // Scores of token g + 8 `row` to weights, with the running maximum.
    __device__ __forceinline__ void soften(std::uint32_t key0, std::uint32_t row, float (&scores)[4][4],
                                           AttentionState& state) const {
        // 1 / sqrt(64), and the exponential is taken to the base 2.
        constexpr float kScale = 0.125f * 1.44269504088896f;
        const std::uint32_t token = rows.token[row];
        float top = state.top[row];
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i) {
            float& score = scores[i / 2][row * 2 + i % 2];
            const std::uint32_t key = key0 + lane % 4 * 8 + i;
            const bool seen = key <= token && token - key < reach;
            score = seen ? score * kScale : -INFINITY;
            top = fmaxf(top, score);
        }
        state.weigh(row, top, scores);
    }
};

// [warp][token][kPartFloats]
using AttentionParts = float[kAttentionWarps * kTokens * kPartFloats];

// Thread 16 token + place: four dimensions of a token, the warps' parts in their order.
__device__ __forceinline__ void merge_parts(const AttentionWarp& w, const AttentionParts& parts) {
    const std::uint32_t token = threadIdx.x / 16, place = threadIdx.x % 16;
    float top = -INFINITY;
#pragma unroll
    for (std::uint32_t part = 0; part < kAttentionWarps; ++part) {
        top = fmaxf(top, parts[(part * kTokens + token) * kPartFloats + kHeadDim]);
    }
    const float base = top == -INFINITY ? 0.0f : top;
    float sum = 0.0f;
    float4 output{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (std::uint32_t part = 0; part < kAttentionWarps; ++part) {
        const float* from = parts + (part * kTokens + token) * kPartFloats;
        const float weight = exp2f(from[kHeadDim] - base);
        const float4 value = *reinterpret_cast<const float4*>(from + place * 4);
        sum += weight * from[kHeadDim + 1];
        output.x += weight * value.x;
        output.y += weight * value.y;
        output.z += weight * value.z;
        output.w += weight * value.w;
    }
    const std::size_t row = (std::size_t{w.head} * kTokens + token) * w.params.plan.splits + w.split;
    float* to = scratch<float>(w.params, w.params.at.attention) + row * kPartFloats;
    *reinterpret_cast<float4*>(to + place * 4) = output;
    if (place == 0) *reinterpret_cast<float2*>(to + kHeadDim) = {top, sum};
}

// `kBatch`: the rows are those of params.rows, and a block has the sequence blockIdx.y.
template <bool kBatch>
__device__ __forceinline__ void attend(const ChainParams& params, AttentionParts& parts) {
    const Shape& s = params.shape;
    const std::uint32_t splits = params.plan.splits, lane = threadIdx.x % kLanes;
    const SequenceRows rows = kBatch ? batch_rows(params, blockIdx.y, lane) : chain_rows(params, lane);
    const std::uint32_t reach = params.global_attention ? rows.end : s.window;
    const AttentionWarp w{params, blockIdx.x / splits, blockIdx.x % splits, threadIdx.x / kLanes, lane, rows, reach};
    const std::uint32_t first = rows.lowest + 1 > reach ? (rows.lowest + 1 - reach) / kKeyRun : 0;
    const std::uint32_t end_run = megakernel::ceil_div(rows.end, kKeyRun), stride = splits * kAttentionWarps;
    std::uint32_t run = first_run_of(w.split * kAttentionWarps + w.warp, stride, first);
    // Rows of earlier steps: no kernel of this chain writes them.
    KeyRun held;
    bool loaded = run < end_run && (run + 1) * kKeyRun <= rows.lowest;
    if (loaded) w.load(run * kKeyRun, held);
    wait_for_kernels_before();
    if (kBatch && rows.end == 0) return;
    uint4 query[2][2];
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint16_t* row =
            params.q + std::size_t{w.lane / 4 + i % 2 * 8} * s.head_columns() + w.head * kHeadDim;
        query[i / 2][i % 2] = *reinterpret_cast<const uint4*>(row + i / 2 * 32 + w.lane % 4 * 8);
    }
    AttentionState state;
#pragma unroll 1
    for (; run < end_run; run += stride) {
        const std::uint32_t key0 = run * kKeyRun;
        if (!loaded) w.load(key0, held);
        loaded = false;
        if (key0 + kKeyRun > rows.end) w.clear_behind(key0, rows.end, held);
        w.take(key0, held, query, state);
    }
    state.leave_part(parts, w.warp, w.lane / 4, w.lane % 4);
    __syncthreads();
    if (kBatch && params.rows->sequence[threadIdx.x / 16] != blockIdx.y) return;
    merge_parts(w, parts);
}

}  // namespace musetrace::baseline::ops
