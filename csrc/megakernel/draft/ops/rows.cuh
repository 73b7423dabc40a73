// Behind products that are cut along K between the blocks of a rank: heads of q, k and v (norm, rotary embedding, the
// write into the cache) by the warp that owns a (head, row), and silu(gate) x up by the lane that owns two features.
#pragma once

#include "megakernel/draft/ops/product.cuh"

namespace musetrace::megakernel::draft::ops {

inline constexpr std::uint32_t kParts = kHeadDim / kLanes;
static_assert(kParts == 4, "a lane has dimensions lane, lane + 32, lane + 64, lane + 96: two pairs that turn together");

// A head of a row, behind the sum of its slices.
struct HeadRow {
    float value[kParts];

    template <class W>
    __device__ __forceinline__ void receive(W& w, std::uint32_t site, std::uint64_t sums, std::uint32_t rows,
                                            std::uint32_t unit, std::uint32_t token) {
        const char* from = w.slots(sums) + (std::size_t{token} * rows + unit * kHeadDim + w.lane) * 4;
        std::uint32_t words[kParts * kMaxSlices];
        sync::receive_slots<sync::OnesF32>(w.waiter, site, words, kParts * w.plan().slices, [&](std::uint32_t i) {
            return from + (i / kParts * kTokens * rows + i % kParts * kLanes) * 4;
        });
#pragma unroll
        for (std::uint32_t part = 0; part < kParts; ++part) {
            value[part] = 0.0f;
#pragma unroll
            for (std::uint32_t slice = 0; slice < kMaxSlices; ++slice) {
                const float of_slice = __uint_as_float(words[slice * kParts + part]);
                value[part] += slice < w.plan().slices ? of_slice : 0.0f;
            }
        }
    }

    // By halves: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), as transformers' rotate_half does.
    template <class W>
    __device__ __forceinline__ void norm_and_turn(const W& w, const float* weight, std::uint32_t position) {
        float squares = 0.0f;
#pragma unroll
        for (const float part : value) squares += part * part;
#pragma unroll
        for (std::uint32_t step = 1; step < kLanes; step *= 2) squares += __shfl_xor_sync(kAllLanes, squares, step);
        const float norm = rsqrtf(squares / kHeadDim + w.shape().rms_eps);
#pragma unroll
        for (std::uint32_t part = 0; part < kParts; ++part) value[part] *= norm * weight[part * kLanes + w.lane];
#pragma unroll
        for (std::uint32_t part = 0; part < kParts / 2; ++part) {
            const std::size_t pair = std::size_t{position} * (kHeadDim / 2) + part * kLanes + w.lane;
            const float2 turn = load_pair(w.params.rope, 2 * pair);
            const float x1 = value[part], x2 = value[part + 2];
            value[part] = x1 * turn.x - x2 * turn.y;
            value[part + 2] = x2 * turn.x + x1 * turn.y;
        }
    }

    // `step` elements from one dimension to the next.
    __device__ __forceinline__ void store(std::uint16_t* to, std::uint32_t lane, std::uint32_t step) const {
#pragma unroll
        for (std::uint32_t part = 0; part < kParts; ++part) {
            to[std::size_t{part * kLanes + lane} * step] = __bfloat16_as_ushort(__float2bfloat16_rn(value[part]));
        }
    }
};

// k or v of a row, into a layer's cache.
template <class W>
__device__ __forceinline__ void store_kv(const W& w, HeadRow& row, const DraftCache& cache, const float* k_norm,
                                         std::uint32_t unit, std::uint32_t position) {
    const DraftSizes& s = w.shape();
    if (unit < s.kv_heads) {
        row.norm_and_turn(w, k_norm, position);
        row.store(cache.k + (std::size_t{unit} * s.capacity + position) * kHeadDim, w.lane, 1);
    } else {
        const std::uint32_t head = unit - s.kv_heads;
        row.store(cache.v + std::size_t{head} * kHeadDim * s.capacity + position, w.lane, s.capacity);
    }
}

// Group: the rows of the pass for the next layer: q, k, v.
template <class W>
__device__ __forceinline__ void finish_qkv(W& w) {
    const DraftSizes& s = w.shape();
    const std::uint32_t items = (s.q_heads + 2 * s.kv_heads) * kTokens, warps = s.blocks * kGroupWarps;
    std::uint32_t item = w.group_warp() * s.blocks + w.block();
    if (item >= items) return;
    MUSETRACE_BEGIN(w.stamps, MuseDraft::qkv_wait_slices);
#pragma unroll 1
    for (bool first = true; item < items; item += warps, first = false) {
        const std::uint32_t unit = item / kTokens, token = item % kTokens, position = w.position() + token;
        HeadRow row;
        row.receive(w, MuseDraft::qkv_wait_slices, w.params.exchange.qkv, s.qkv_rows(), unit, token);
        if (first) {
            MUSETRACE_END(w.stamps, MuseDraft::qkv_wait_slices);
            MUSETRACE_BEGIN(w.stamps, MuseDraft::qkv_rope);
        }
        if (unit < s.q_heads) {
            row.norm_and_turn(w, w.rank.q_norm, position);
            row.store(w.rank.next_q + std::size_t{token} * s.head_columns() + unit * kHeadDim, w.lane, 1);
        } else {
            store_kv(w, row, w.rank.next_cache, w.rank.k_norm, unit - s.q_heads, position);
        }
    }
    MUSETRACE_END(w.stamps, MuseDraft::qkv_rope);
}

// Group: k and v of the context, of all layers, at the positions right in front of the pass's.
template <class W>
__device__ __forceinline__ void finish_context(W& w) {
    const DraftSizes& s = w.shape();
    const std::uint32_t of_layer = 2 * s.kv_heads, count = w.params.state->kept;
    const std::uint32_t items = s.layers * of_layer * kTokens, warps = s.blocks * kGroupWarps;
    // From the last warp on: the first ones have rows of the pass.
    std::uint32_t item = warps - 1 - (w.group_warp() * s.blocks + w.block());
    if (item >= items) return;
    MUSETRACE_BEGIN(w.stamps, MuseDraft::context_wait_slices);
#pragma unroll 1
    for (bool first = true; item < items; item += warps, first = false) {
        const std::uint32_t unit = item / kTokens, token = item % kTokens;
        HeadRow row;
        row.receive(w, MuseDraft::context_wait_slices, w.params.exchange.context, s.context_rows(), unit, token);
        if (first) {
            MUSETRACE_END(w.stamps, MuseDraft::context_wait_slices);
            MUSETRACE_BEGIN(w.stamps, MuseDraft::context_rope);
        }
        if (token >= count) continue;
        const auto& layer = w.rank.context->layers[unit / of_layer];
        store_kv(w, row, layer.cache, layer.k_norm, unit % of_layer, w.position() - count + token);
    }
    MUSETRACE_END(w.stamps, MuseDraft::context_rope);
}

// Group: silu(gate) x up, the input of down. A lane has two features of a row: a word of a chunk.
template <class W>
__device__ __forceinline__ void activate(W& w) {
    const DraftSizes& s = w.shape();
    const std::uint32_t items = s.inner / kChunkK * kTokens / 2, warps = s.blocks * kGroupWarps;
    const std::uint32_t slices = w.plan().slices, rows = 2 * s.inner;
    std::uint32_t item = w.group_warp() * s.blocks + w.block();
    if (item >= items) return;
    MUSETRACE_BEGIN(w.stamps, MuseDraft::gate_up_wait_slices);
#pragma unroll 1
    for (bool first = true; item < items; item += warps, first = false) {
        const std::uint32_t chunk = item / (kTokens / 2), token = item % (kTokens / 2) * 2 + w.lane / kChunkWords;
        const std::uint32_t word = w.lane % kChunkWords, pair = pair_place(word);
        const char* from =
            w.slots(w.params.exchange.gate_up) + (std::size_t{token} * rows + 2 * (chunk * kChunkK + 2 * pair)) * 4;
        uint4 words[kMaxSlices];  // gate and up of both features
        sync::receive_slots<sync::OnesF32>(w.waiter, MuseDraft::gate_up_wait_slices, words, slices,
                                           [&](std::uint32_t slice) { return from + slice * kTokens * rows * 4; });
        if (first) {
            MUSETRACE_END(w.stamps, MuseDraft::gate_up_wait_slices);
            MUSETRACE_BEGIN(w.stamps, MuseDraft::gate_up_activate);
        }
        float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (std::uint32_t slice = 0; slice < kMaxSlices; ++slice) {
            if (slice >= slices) continue;
            sum.x += __uint_as_float(words[slice].x);
            sum.y += __uint_as_float(words[slice].y);
            sum.z += __uint_as_float(words[slice].z);
            sum.w += __uint_as_float(words[slice].w);
        }
        const auto silu = [](float x) { return __fdividef(x, 1.0f + __expf(-x)); };
        sync::send_slots(
            w.slots(w.params.exchange.activated) + (std::size_t{chunk} * kTokens + token) * kChunkBytes + word * 4,
            pack_bf16(silu(sum.x) * sum.y, silu(sum.z) * sum.w));
    }
    MUSETRACE_END(w.stamps, MuseDraft::gate_up_activate);
}

}  // namespace musetrace::megakernel::draft::ops
