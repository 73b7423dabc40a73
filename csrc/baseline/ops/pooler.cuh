// Pooler and router, both cut along K between the blocks; the next kernel sums the slices.
#pragma once

#include "baseline/ops/dense.cuh"

namespace musetrace::baseline::ops {

using megakernel::PoolShare;

// fp32: a stage is one row's slice of K. Each warp takes every eighth chunk of K for all 16 tokens.
template <class Shared>
__device__ __forceinline__ void multiply_router(DenseWarp<Shared>& w, const PoolShare& share, std::uint32_t k) {
    constexpr std::uint32_t kSite = MuseHopper::router_compute;
    float* parts = w.shared.sums[0];  // [warp][row][token]
    const std::uint32_t rows = share.router.size(), g = w.lane / 4, t = w.lane % 4;
    w.meet(kSite);
#pragma unroll 1
    for (std::uint32_t row = 0; row < rows; ++row) {
        const auto* weights = reinterpret_cast<const float*>(w.shared.ring.wait_full(w.waiter, kSite, w.cursor));
        float sums[2] = {0.0f, 0.0f};
#pragma unroll 1
        for (std::uint32_t chunk = w.warp; chunk < k / kChunkK; chunk += kGroupWarps) {
            float2 weight[4];
#pragma unroll
            for (std::uint32_t q = 0; q < 4; ++q) weight[q] = load_pair(weights, chunk * kChunkK + q * 8 + t * 2);
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                const char* x = w.shared.x() + (chunk * kTokens + g + half * 8) * kChunkBytes + t * kLoadBytes;
                const uint4 words = *reinterpret_cast<const uint4*>(x);
                const float2 v[4] = {unpack_bf16(words.x), unpack_bf16(words.y), unpack_bf16(words.z),
                                     unpack_bf16(words.w)};
#pragma unroll
                for (std::uint32_t q = 0; q < 4; ++q) sums[half] += v[q].x * weight[q].x + v[q].y * weight[q].y;
            }
        }
        w.shared.ring.mark_empty(w.cursor);
#pragma unroll
        for (std::uint32_t half = 0; half < 2; ++half) {
            const float sum = sum_lanes<4>(sums[half]);
            if (t == 0) parts[(w.warp * rows + row) * kTokens + g + half * 8] = sum;
        }
    }
    w.meet(kSite);
    const std::size_t first = std::size_t{share.slice} * w.params.shape.router_rows() + share.router.begin;
    float* to = scratch<float>(w.params, w.params.at.router) + first * kTokens;
#pragma unroll 1
    for (std::uint32_t i = w.group_thread(); i < rows * kTokens; i += kGroupThreads) {
        float total = 0.0f;
#pragma unroll
        for (std::uint32_t part = 0; part < kGroupWarps; ++part) total += parts[part * rows * kTokens + i];
        to[i] = total;
    }
}

template <class Shared>
__device__ __forceinline__ void pool(DenseWarp<Shared>& w) {
    const Shape& s = w.params.shape;
    const std::uint32_t slices = w.params.plan.pool_slices, k = s.hidden / slices;
    const PoolShare share = megakernel::pool_share(s, w.params.plan, blockIdx.x);
    if (w.loads()) {
        const TileStages pooler(w.params.layer.pooler, s.hidden, share.tiles, share.slice, slices);
        const std::uint32_t pooled = share.tiles.size() * pooler.per_slice;
        const float* router = w.params.layer.router + std::size_t{share.router.begin} * s.hidden + share.slice * k;
        const auto weights = [&](std::uint32_t i) -> Weights {
            if (i < pooled) return pooler(i);
            return {reinterpret_cast<const char*>(router + std::size_t{i - pooled} * s.hidden), k * 4};
        };
        load_dense(w, MuseHopper::pooler_load, pooled + share.router.size(), weights,
                   w.params.scratch + w.params.at.x + std::size_t{share.slice} * x_bytes(k), x_bytes(k));
        return;
    }
    wait_for_x(w, MuseHopper::pooler_wait_input);
    float* to = scratch<float>(w.params, w.params.at.pool) +
                (std::size_t{share.slice} * kTokens + w.token()) * s.pooled_rows() + 2 * w.pair();
    multiply_tiles(w, MuseHopper::pooler_compute, s.hidden, slices, share.tiles,
                   [&](std::uint32_t tile, std::uint32_t tiles, float2 sums) {
                       if (w.pair() / 8 < tiles) *reinterpret_cast<float2*>(to + tile * kTileRows) = sums;
                   });
    if (share.router.size() != 0) multiply_router(w, share, k);
}

}  // namespace musetrace::baseline::ops
