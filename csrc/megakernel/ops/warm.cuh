// What the group will read between two waits, brought into L1 before it waits: vectors of the block's columns come from
// HBM once a launch, and each of them would cost a microsecond on the way.
#pragma once

#include "megakernel/block.cuh"

namespace musetrace::megakernel::ops {

// Warps 1 and 2: `bytes` from `from` on, in every `rows` rows `step` bytes apart.
template <class W>
__device__ __forceinline__ void touch_rows(const W& w, const void* from, std::uint32_t bytes, std::uint32_t rows,
                                           std::uint32_t step) {
    constexpr std::uint32_t kLine = 128;
    const std::uint32_t lines = ceil_div(bytes, kLine), thread = (w.warp - 1) * kLanes + w.lane;
#pragma unroll 1
    for (std::uint32_t i = thread; i < lines * rows; i += 2 * kLanes) {
        touch(static_cast<const char*>(from) + i / lines * step + i % lines * kLine);
    }
}

template <class W>
__device__ __forceinline__ void warm(const W& w) {
    const Shape& s = w.shape();
    const Share units = w.shared.shares.units;
    const std::uint32_t bytes = units.size() * kUnitRows * 4, at = units.begin * kUnitRows;
    const LayerWeights& layer = w.rank.layer;
    touch_rows(w, w.rank.residual + at, bytes, kTokens, s.hidden * 4);
    touch_rows(w, w.rank.next.norm + at, bytes, 1, 0);
    if (w.params.kind != LaunchKind::kLayer) return;
    touch_rows(w, layer.attn_alpha + at, bytes, 1, 0);
    touch_rows(w, layer.attn_beta + at, bytes, 1, 0);
    touch_rows(w, layer.pre_ffn_norm + at, bytes, 1, 0);
    touch_rows(w, layer.post_ffn_norm + at, bytes, 1, 0);
    touch_rows(w, layer.ffn_alpha + at, bytes, 1, 0);
    touch_rows(w, layer.ffn_beta + at, bytes, 1, 0);
    touch_rows(w, layer.router_bias, s.experts * 4, 1, 0);
    const std::uint32_t part = s.moe_hidden / w.plan().norm_parts, parts = w.plan().norm_parts;
    touch_rows(w, layer.pre_expert_norm + w.block() / kTokens % parts * part, part * 4, 1, 0);
    touch_rows(w, layer.post_expert_norm + w.rank.places[0] * s.pooled_rows(), s.pooled_rows() * 4, 1, 0);
}

}  // namespace musetrace::megakernel::ops
