// lm_head, a launch of its own: logits of the normed residual stream. K is cut between the blocks; a second kernel adds
// the slices.
#pragma once

#include "megakernel/block_entry.cuh"
#include "megakernel/ops/dense.cuh"

namespace musetrace::megakernel {

__device__ __forceinline__ std::uint32_t padded_vocab(const Shape& s) {
    return ceil_div(s.vocab, kTileRows) * kTileRows;
}

template <StampMode kMode>
struct HeadWarp : WarpBase<kMode, false, abi::max_registers<MuseHopper>()> {
    const HeadParams& params;
    std::uint32_t rank;
    DenseShare share;
};

template <class W>
__device__ __forceinline__ void load_head(W& w) {
    if (w.share.tiles.size() == 0) return;
    // All the bandwidth: nothing in this launch waits for another block, so that hops may take as long as they like.
    ExpertRing::Producer ring(w.shared.ring, sync::kInFlightBytes);
    ops::load_tiles(w, ring, pick_job<MuseHopper::lm_head_load>(0), w.params.rank[w.rank].lm_head,
                    w.params.shape.hidden, w.share.tiles, w.share.slice, w.params.plan.head_slices);
}

template <class W>
__device__ __forceinline__ void multiply_head(W& w) {
    if (w.share.tiles.size() == 0) return;
    const Shape& s = w.params.shape;
    const std::uint32_t k = s.hidden / w.params.plan.head_slices, stage = stage_k(s.hidden);
    const std::uint32_t bytes = k / kChunkK * kTokens * kChunkBytes;
    w.template job<MuseHopper::lm_head_load_input>([&] {
        const char* x = w.params.rank[w.rank].x + std::size_t{w.share.slice} * bytes;
        // As many at once as a slice of the real width has: one way to L2 and back.
        constexpr std::uint32_t kLoads = 16, kStep = kGroupThreads * kLoadBytes;
#pragma unroll 1
        for (std::uint32_t at = w.group_thread() * kLoadBytes; at < bytes; at += kLoads * kStep) {
            uint4 words[kLoads];
#pragma unroll
            for (std::uint32_t i = 0; i < kLoads; ++i) {
                words[i] = *reinterpret_cast<const uint4*>(x + min(at + i * kStep, bytes - kLoadBytes));
            }
#pragma unroll
            for (std::uint32_t i = 0; i < kLoads; ++i) {
                if (at + i * kStep < bytes) *reinterpret_cast<uint4*>(w.shared.pool + at + i * kStep) = words[i];
            }
        }
    });
    w.meet(MuseHopper::lm_head_load_input);
    w.template job<MuseHopper::lm_head_wait_weights>(
        [&] { w.shared.ring.wait_full(w.waiter, MuseHopper::lm_head_wait_weights, w.cursor); });
    w.template job<MuseHopper::lm_head_compute>([&] {
        const std::uint32_t pair = pair_place(w.group_thread() % kChunkWords), rows = padded_vocab(s);
        const std::size_t token = std::size_t{w.share.slice} * kTokens + w.group_thread() / kChunkWords;
        float* partial = w.params.rank[w.rank].partial + token * rows;
#pragma unroll 1
        for (std::uint32_t tile = w.share.tiles.begin; tile < w.share.tiles.end; tile += 2) {
            const std::uint32_t tiles = min(2u, w.share.tiles.end - tile);
            ops::UnitSums sums;
            ops::multiply_unit(w, MuseHopper::lm_head_compute, w.shared.pool, tiles, k / stage, stage, sums);
            const float2 value = ops::reduce_unit(w, MuseHopper::lm_head_compute, sums);
            if (pair / 8 < tiles) *reinterpret_cast<float2*>(partial + tile * kTileRows + 2 * pair) = value;
        }
    });
}

// kDelays is kOff here.
template <LayerBuild kBuild>
__global__ void __launch_bounds__(kBlockThreads, 1) muse_head(const __grid_constant__ HeadParams params) {
    constexpr StampMode kMode = stamp_mode(kBuild);
    extern __shared__ __align__(128) char bytes[];
    SharedMemory& shared = *reinterpret_cast<SharedMemory*>(bytes);
    const std::uint32_t rank = blockIdx.x / params.shape.blocks, block = blockIdx.x % params.shape.blocks;
    if (threadIdx.x == 0) {
        shared.init();
        shared.waiter = {params.report, params.budget_ns, params.first_rank + rank, block, 0, params.abort};
    }
    set_stamps<kMode>(shared.stamps, params, rank, block);
    __syncthreads();
    const std::uint32_t warp = __shfl_sync(kAllLanes, threadIdx.x / kLanes, 0);
    if (params.programmatic) let_next_launch_start();
    HeadWarp<kMode> w{{shared, shared.waiter, {shared.stamps, block, warp}, warp, sync::lane_id()},
                      params,
                      rank,
                      head_share(params.shape, params.plan, block)};
    if (warp == 0) {
        load_head(w);
    } else {
        wait_for_launch_before();
        if (warp == kSenderWarp && w.lane == 0) stamp_launch<kMode>(shared.stamps, params);
        if (warp >= kFirstGroupWarp) multiply_head(w);
    }
    w.stamps.flush();
}

}  // namespace musetrace::megakernel
