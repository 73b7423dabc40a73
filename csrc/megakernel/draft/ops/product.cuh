// The dense products of a draft launch, which share this code: what differs is where x comes from and where the sums
// go.
//
//   own columns (fc, o, down)         all of K for the columns of the residual stream that the block owns; into the
//   outbox slices of K (gate_up, qkv, context)   some rows, a slice of K; fp32 sums into slots
//
// K is taken in pieces that shared memory holds: stages of the first piece for all tiles, then those of the next.
#pragma once

#include "megakernel/draft/block.cuh"

namespace musetrace::megakernel::draft::ops {

using megakernel::ops::multiply_unit;
using megakernel::ops::receive_block;
using megakernel::ops::reduce_unit;
using megakernel::ops::UnitSums;

// kFirst: fc of a context launch, o of a layer.
enum Phase : std::uint32_t { kFirst, kGateUp, kDown, kQkv, kContext, kEnd };

template <class W>
__device__ __forceinline__ Phase next_phase(const W& w, std::uint32_t phase) {
    if (w.is_context()) return phase == kFirst ? kQkv : phase == kQkv ? kContext : kEnd;
    return phase == kQkv || (phase == kDown && w.rank.qkv == nullptr) ? kEnd : static_cast<Phase>(phase + 1);
}

inline constexpr std::uint32_t kPieceStages = kPieceK / kMaxStageK;

// Which stages of which tiles.
struct Walk {
    Share tiles;
    std::uint32_t k_of_stage;
    std::uint32_t stages;      // of a tile, in memory
    std::uint32_t first, end;  // those that the block takes

    __device__ __forceinline__ std::uint32_t columns() const { return (end - first) * k_of_stage; }
};

__device__ __forceinline__ Walk own_columns(const DraftShares& shares, std::uint32_t k) {
    const std::uint32_t stages = k / stage_k(k);
    return {{2 * shares.units.begin, 2 * shares.units.end}, stage_k(k), stages, 0, stages};
}
__device__ __forceinline__ Walk slice_of(const DenseShare& share, std::uint32_t k, std::uint32_t slices) {
    const std::uint32_t stages = k / stage_k(k), count = stages / slices;
    return {share.tiles, stage_k(k), stages, share.slice * count, (share.slice + 1) * count};
}

template <class W>
__device__ __forceinline__ Walk walk_of(const W& w, Phase phase) {
    const DraftSizes& s = w.shape();
    const DraftShares& shares = w.shared.shares;
    if (phase == kFirst) return own_columns(shares, w.is_context() ? s.feature_k : s.head_columns());
    if (phase == kDown) return own_columns(shares, s.inner);
    const DenseShare& share = phase == kGateUp ? shares.gate_up : phase == kQkv ? shares.qkv : shares.context;
    return slice_of(share, s.hidden, w.plan().slices);
}

// Of a tile of a phase.
template <class W>
__device__ __forceinline__ const char* tile_source(const W& w, Phase phase, const Walk& walk, std::uint32_t tile) {
    const char* matrix = phase == kFirst    ? w.rank.first
                         : phase == kGateUp ? w.rank.gate_up
                         : phase == kDown   ? w.rank.down
                                            : w.rank.qkv;
    if (phase == kContext) {
        // k and v heads stand behind those of q.
        const std::uint32_t of_layer = w.shape().kv_rows() / kTileRows;
        matrix = w.rank.context->layers[tile / of_layer].qkv;
        tile = tile % of_layer + w.shape().q_heads * kTilesOfHead;
    }
    return matrix + std::size_t{tile} * walk.stages * Bf16Unit::bytes(walk.k_of_stage);
}

// Loader: a phase's weights.
template <class W>
__device__ __forceinline__ void load_phase(W& w, Ring::Producer& ring, Phase phase) {
    const Walk walk = walk_of(w, phase);
    if (walk.tiles.size() == 0) return;
    const Job job = w.is_context() && phase == kFirst
                        ? pick_draft_job<MuseDraft::fc_load>(0)
                        : pick_draft_job<MuseDraft::o_proj_load, MuseDraft::gate_up_load, MuseDraft::down_load,
                                         MuseDraft::qkv_load, MuseDraft::context_load>(phase);
    const std::uint32_t bytes = Bf16Unit::bytes(walk.k_of_stage);
    w.begin(job);
#pragma unroll 1
    for (std::uint32_t first = walk.first; first < walk.end; first += kPieceStages) {
        const std::uint32_t count = min(kPieceStages, walk.end - first);
#pragma unroll 1
        for (std::uint32_t tile = walk.tiles.begin; tile < walk.tiles.end; ++tile) {
            const char* source = tile_source(w, phase, walk, tile) + first * bytes;
#pragma unroll 1
            for (std::uint32_t stage = 0; stage < count; ++stage, source += bytes) {
                ring.fill(w.waiter, job.site, source, bytes);
            }
        }
    }
    w.end(job);
}

// Group: columns [first, first + columns) of the rank's features, as bf16 by columns. Rows that are no context, and
// columns behind the last one, are zero.
template <class W>
__device__ __forceinline__ void take_features(W& w, std::uint32_t first, std::uint32_t columns) {
    // A thread has 16 bytes of some chunks: four pairs of columns of a row, the same row in all of them. Eight chunks
    // are asked for at once: it is the way to L2 and back that takes long.
    constexpr std::uint32_t kChunks = 8, kChunkThreads = kTokens * 4, kStep = kGroupThreads / kChunkThreads;
    const DraftSizes& s = w.shape();
    const std::uint32_t t = w.group_thread() % 4, row = w.group_thread() / 4 % kTokens;
    const bool is_context = row < w.params.state->kept;
    const std::size_t row_at = is_context ? std::size_t{w.params.state->path[row]} * s.hidden + 2 * t : 0;
    const std::uint32_t begin = w.rank.places[0] * s.feature_columns + first, chunks = columns / kChunkK;
    auto* to = reinterpret_cast<uint4*>(w.shared.pool) + w.group_thread() % kChunkThreads;
#pragma unroll 1
    for (std::uint32_t chunk = w.group_thread() / kChunkThreads; chunk < chunks; chunk += kChunks * kStep) {
        float2 pairs[kChunks][4] = {};
        if (is_context) {
            std::uint32_t at = begin + chunk * kChunkK, layer = at / s.hidden;
            at -= layer * s.hidden;
#pragma unroll
            for (std::uint32_t i = 0; i < kChunks; ++i) {
                const bool is_there = first + (chunk + i * kStep) * kChunkK < s.feature_columns;
                const float* from = w.rank.context->features[is_there ? layer : 0] + row_at + (is_there ? at : 0);
#pragma unroll
                for (std::uint32_t pair = 0; pair < 4; ++pair) {
                    const float2 value = load_pair(from, 8 * pair);
                    pairs[i][pair] = is_there ? value : float2{0.0f, 0.0f};
                }
                at += kStep * kChunkK;
                if (at >= s.hidden) at -= s.hidden, ++layer;
            }
        }
#pragma unroll
        for (std::uint32_t i = 0; i < kChunks; ++i) {
            const auto& [a, b, c, d] = pairs[i];
            const uint4 words{pack_bf16(a.x, a.y), pack_bf16(b.x, b.y), pack_bf16(c.x, c.y), pack_bf16(d.x, d.y)};
            if (chunk + i * kStep < chunks) to[(chunk + i * kStep) * kChunkThreads] = words;
        }
    }
}
static_assert(pair_place(0) == 0 && pair_place(4) == 1 && pair_place(8) == 2 && pair_place(12) == 3);

// Group: the x of some stages into the pool.
template <class W>
__device__ __forceinline__ void take_x(W& w, std::uint32_t site, Phase phase, const Walk& walk, std::uint32_t first,
                                       std::uint32_t count) {
    const DraftExchange& at = w.params.exchange;
    w.meet(site);  // what the pool held has been read
    if (w.is_context() && phase == kFirst) {
        take_features(w, first * walk.k_of_stage, count * walk.k_of_stage);
    } else {
        const std::uint64_t x = phase == kFirst  ? at.heads
                                : phase == kDown ? at.activated
                                : phase == kQkv  ? at.x2
                                                 : at.x1;
        const std::uint32_t bytes_of_stage = walk.k_of_stage / kChunkK * kTokens * kChunkBytes;
        receive_block<sync::OnesBf16>(w, site, w.slots(x) + first * bytes_of_stage, w.shared.pool,
                                      count * bytes_of_stage);
    }
    w.meet(site);
}

// Where the thread's pair of sums of tile 0 goes, of a product that is cut along K.
template <class W>
__device__ __forceinline__ char* sums_slots(const W& w, Phase phase) {
    const DraftSizes& s = w.shape();
    const DraftExchange& at = w.params.exchange;
    const std::uint32_t rows = phase == kGateUp ? 2 * s.inner : phase == kQkv ? s.qkv_rows() : s.context_rows();
    const std::uint64_t sums = phase == kGateUp ? at.gate_up : phase == kQkv ? at.qkv : at.context;
    const DraftShares& shares = w.shared.shares;
    const DenseShare& share = phase == kGateUp ? shares.gate_up : phase == kQkv ? shares.qkv : shares.context;
    const std::uint32_t token = w.group_thread() / kChunkWords, pair = pair_place(w.group_thread() % kChunkWords);
    return w.slots(sums) + ((std::size_t{share.slice} * kTokens + token) * rows + pair * 2) * 4;
}

struct ProductJobs {
    Job wait_input, wait_weights, compute;
};
template <class W>
__device__ __forceinline__ ProductJobs product_jobs(const W& w, Phase phase) {
    if (w.is_context() && phase == kFirst) {
        return {pick_draft_job<MuseDraft::fc_load_input>(0), pick_draft_job<MuseDraft::fc_wait_weights>(0),
                pick_draft_job<MuseDraft::fc_compute>(0)};
    }
    ProductJobs jobs{
        pick_draft_job<MuseDraft::o_proj_wait_heads, MuseDraft::gate_up_wait_input, MuseDraft::down_wait_input,
                       MuseDraft::qkv_wait_input, MuseDraft::context_wait_input>(phase),
        pick_draft_job<MuseDraft::o_proj_wait_weights, MuseDraft::gate_up_wait_weights, MuseDraft::down_wait_weights,
                       MuseDraft::qkv_wait_weights, MuseDraft::context_wait_weights>(phase),
        pick_draft_job<MuseDraft::o_proj_compute, MuseDraft::gate_up_compute, MuseDraft::down_compute,
                       MuseDraft::qkv_compute, MuseDraft::context_compute>(phase)};
    if (w.is_context() && phase == kQkv) jobs.wait_input = pick_draft_job<MuseDraft::first_wait_input>(0);
    return jobs;
}

// Group: all tiles over some stages. `last`: no more stages behind them.
template <class W>
__device__ __forceinline__ void multiply_piece(W& w, std::uint32_t site, Phase phase, const Walk& walk,
                                               std::uint32_t count, bool begun, bool last) {
    const bool own = phase == kFirst || phase == kDown;
    char* to = own ? nullptr : sums_slots(w, phase) + walk.tiles.begin * kTileRows * 4;
#pragma unroll 1
    for (std::uint32_t tile = walk.tiles.begin, unit = 0; tile < walk.tiles.end; tile += 2, ++unit) {
        const std::uint32_t tiles = min(2u, walk.tiles.end - tile);
        UnitSums sums;
        multiply_unit(w, site, w.shared.pool, tiles, count, walk.k_of_stage, sums);
        float2 value = reduce_unit(w, site, sums);
        if (own) {
            float2& so_far = w.shared.branch[unit][w.group_thread()];
            if (begun) value = {so_far.x + value.x, so_far.y + value.y};
            if (last) {
                w.shared.outbox[unit][w.group_thread()] = sync::ZerosBf16::encode(pack_bf16(value.x, value.y));
            } else {
                so_far = value;
            }
        } else {
            if (pair_place(w.group_thread() % kChunkWords) / 8 < tiles) {
                sync::send_slots(to, reinterpret_cast<const uint2&>(value));
            }
            to += kUnitRows * 4;
        }
    }
}

// Group: a phase's product. The wait for the first stage has a job of its own; later ones, and later pieces of x, are
// waited for inside the compute job.
template <class W>
__device__ __forceinline__ void multiply(W& w, Phase phase) {
    const Walk walk = walk_of(w, phase);
    if (walk.tiles.size() == 0) return;
    const ProductJobs jobs = product_jobs(w, phase);
    const bool own = phase == kFirst || phase == kDown;
    w.begin(jobs.wait_input);
#pragma unroll 1
    for (std::uint32_t first = walk.first; first < walk.end; first += kPieceStages) {
        const std::uint32_t count = min(kPieceStages, walk.end - first);
        const bool begun = first != walk.first;
        take_x(w, begun ? jobs.compute.site : jobs.wait_input.site, phase, walk, first, count);
        if (!begun) {
            w.next(jobs.wait_input, jobs.wait_weights);
            w.shared.ring.wait_full(w.waiter, jobs.wait_weights.site, w.cursor);
            w.next(jobs.wait_weights, jobs.compute);
            if (phase == kDown) w.shared.outbox_empty.wait_parity(w.waiter, jobs.compute.site, 0);
        }
        multiply_piece(w, jobs.compute.site, phase, walk, count, begun, first + count == walk.end);
    }
    if (own) w.shared.outbox_full.arrive_as_warp(w.lane);
    w.end(jobs.compute);
}

}  // namespace musetrace::megakernel::draft::ops
