// Dense products of 16 tokens: weights through the ring, tokens from shared memory, two tiles of 16 rows at a time.
// Four ops are such products, and share this code: what differs is where x comes from and where the sums go.
#pragma once

#include "megakernel/block.cuh"

namespace musetrace::megakernel::ops {

// The phases of a launch for the group warps: each is a dense product and what comes behind it.
enum Phase : std::uint32_t { kOProj, kPooler, kUnpooler, kQkv, kPhases };

// Loader: the stages of tiles [tiles) and K slice `slice` of `slices`, tile by tile.
template <class W, class Producer>
__device__ __forceinline__ void load_tiles(W& w, Producer& ring, Job job, const char* matrix, std::uint32_t k,
                                           Share tiles, std::uint32_t slice, std::uint32_t slices) {
    if (tiles.size() == 0) return;
    const std::uint32_t stages = k / stage_k(k), per_slice = stages / slices, bytes = Bf16Unit::bytes(stage_k(k));
    w.begin(job);
#pragma unroll 1
    for (std::uint32_t tile = tiles.begin; tile < tiles.end; ++tile) {
        const char* source = matrix + (std::size_t{tile} * stages + std::size_t{slice} * per_slice) * bytes;
#pragma unroll 1
        for (std::uint32_t stage = 0; stage < per_slice; ++stage, source += bytes) {
            ring.fill(w.waiter, job.site, source, bytes);
        }
    }
    w.end(job);
}

template <class W>
__device__ __forceinline__ std::uint32_t end_phase(const W& w) {
    return w.rank.next.qkvg != nullptr ? kPhases : kQkv;
}

// Loader: a phase's weights.
template <class W>
__device__ __forceinline__ void load_phase(W& w, ExpertRing::Producer& ring, Phase phase) {
    const Shape& s = w.shape();
    const BlockShares& shares = w.shared.shares;
    const Job job =
        pick_job<MuseHopper::o_proj_load, MuseHopper::pooler_load, MuseHopper::unpooler_load, MuseHopper::qkv_load>(
            phase);
    Share tiles{2 * shares.units.begin, 2 * shares.units.end};
    const char* matrix = phase == kOProj ? w.rank.layer.o : w.rank.layer.unpooler;
    std::uint32_t k = phase == kOProj ? s.head_columns() : s.pooled_rows(), slice = 0, slices = 1;
    if (phase == kPooler) {
        tiles = shares.pool.tiles, matrix = w.rank.layer.pooler;
        k = s.hidden, slice = shares.pool.slice, slices = w.plan().pool_slices;
    } else if (phase == kQkv) {
        tiles = shares.qkv.tiles, matrix = w.rank.next.qkvg;
        k = s.hidden, slice = shares.qkv.slice, slices = w.plan().qkv_slices;
    }
    load_tiles(w, ring, job, matrix, k, tiles, slice, slices);
}

// Group: `bytes` of slots into shared memory, as they are.
template <class Slot, class W>
__device__ __forceinline__ void receive_block(W& w, std::uint32_t site, const char* slots, char* shared,
                                              std::uint32_t bytes) {
    constexpr std::uint32_t kLoads = 8;
#pragma unroll 1
    for (std::uint32_t at = w.group_thread() * kLoadBytes; at - w.lane * kLoadBytes < bytes;
         at += kLoads * kGroupThreads * kLoadBytes) {
        const auto offset = [&](std::uint32_t i) { return at + i * kGroupThreads * kLoadBytes; };
        uint4 words[kLoads];
        sync::receive_slots<Slot>(w.waiter, site, words, sync::count_below(at, bytes, kGroupThreads * kLoadBytes),
                                  [&](std::uint32_t i) { return slots + offset(i); });
#pragma unroll
        for (std::uint32_t i = 0; i < kLoads; ++i) {
            if (offset(i) < bytes) *reinterpret_cast<uint4*>(shared + offset(i)) = words[i];
        }
    }
}

// A warp has one of the two tiles and a quarter of K; its sums are [eight tokens][as multiply_add has them].
struct UnitSums {
    float value[2][4] = {};
};
inline constexpr std::uint32_t kDenseKGroups = kGroupWarps / 2;

// Group: up to two tiles of `stages` stages, their x by columns from `x` on. A warp gives the stages of the other tile
// back as they come.
template <class W>
__device__ __forceinline__ void multiply_unit(W& w, std::uint32_t site, const char* x, std::uint32_t tiles,
                                              std::uint32_t stages, std::uint32_t k_of_stage, UnitSums& sums) {
    const std::uint32_t chunks = k_of_stage / kChunkK;
    const char* lane_x = x + w.lane / 4 * kChunkBytes + w.lane % 4 * kLoadBytes;
#pragma unroll 1
    for (std::uint32_t number = 0; number < tiles * stages; ++number) {
        const char* weights = w.shared.ring.wait_full(w.waiter, site, w.cursor);
        const std::uint32_t stage = number - (w.group_warp() / kDenseKGroups) * stages;
        if (stage < stages) {  // of this warp's tile
#pragma unroll 4
            for (std::uint32_t chunk = w.group_warp() % kDenseKGroups; chunk < chunks; chunk += kDenseKGroups) {
                const AFragment first = load_bf16(weights, 2 * chunk, w.lane);
                const AFragment second = load_bf16(weights, 2 * chunk + 1, w.lane);
                const char* tokens = lane_x + (stage * chunks + chunk) * kTokens * kChunkBytes;
#pragma unroll
                for (std::uint32_t half = 0; half < 2; ++half) {
                    const uint4 b = *reinterpret_cast<const uint4*>(tokens + half * 8 * kChunkBytes);
                    multiply_add(sums.value[half], first, b.x, b.y);
                    multiply_add(sums.value[half], second, b.z, b.w);
                }
            }
        }
        w.shared.ring.mark_empty(w.cursor);
    }
}

// Where (token, row of the unit) stands in a K group's scratch: the exchange of bits keeps lanes with one row and
// different tokens in different banks, and pairs of rows together.
__device__ __forceinline__ std::uint32_t scratch_place(std::uint32_t token, std::uint32_t row) {
    return token * kUnitRows + (row ^ token / 2 % 4 * 8);
}

// Group: the sums of the K groups, in their order. Thread 16 token + place gets the rows 2 pair and 2 pair + 1 of the
// unit for its token, pair = pair_place(place), so that what the threads of a warp write to a chunk is one run.
template <class W>
__device__ __forceinline__ float2 reduce_unit(W& w, std::uint32_t site, const UnitSums& sums) {
    float* scratch = w.scratch();
    float* own = scratch + w.group_warp() % kDenseKGroups * kUnitFloats;
    const std::uint32_t row = w.group_warp() / kDenseKGroups * kTileRows + w.lane / 4, token = w.lane % 4 * 2;
#pragma unroll
    for (std::uint32_t half = 0; half < 2; ++half) {
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            own[scratch_place(half * 8 + token + i % 2, row + i / 2 * 8)] = sums.value[half][i];
        }
    }
    w.meet(site);
    const std::uint32_t thread = w.group_thread(), pair = pair_place(thread % kChunkWords);
    const float* at = scratch + scratch_place(thread / kChunkWords, 2 * pair);
    float2 total{0.0f, 0.0f};
#pragma unroll
    for (std::uint32_t part = 0; part < kDenseKGroups; ++part) {
        const float2 value = *reinterpret_cast<const float2*>(at + part * kUnitFloats);
        total.x += value.x;
        total.y += value.y;
    }
    return total;
}
static_assert(kDenseKGroups * kUnitFloats == kTileFloats, "the scratch is a buffer of the experts' sums");

// The outbox: what the group leaves for the sender, used three times a launch.
template <class W>
__device__ __forceinline__ void wait_outbox_empty(W& w, std::uint32_t site, std::uint32_t use) {
    if (use != 0) w.shared.outbox_empty.wait_parity(w.waiter, site, (use - 1) % 2);
}
template <class W>
__device__ __forceinline__ void mark_outbox_full(W& w) {
    w.shared.outbox_full.arrive_as_warp(w.lane);
}
template <class W>
__device__ __forceinline__ void wait_outbox_full(W& w, std::uint32_t site, std::uint32_t use) {
    w.shared.outbox_full.wait_parity(w.waiter, site, use % 2);
}
template <class W>
__device__ __forceinline__ void mark_outbox_empty(W& w) {
    w.shared.outbox_empty.arrive_as_warp(w.lane);
}
// Which use of the outbox a phase's is: blocks without columns of the residual stream, or without a part of the pooler,
// leave theirs out.
template <class W>
__device__ __forceinline__ std::uint32_t outbox_use(const W& w, Phase phase) {
    const std::uint32_t units = w.shared.shares.units.size() != 0 ? 1 : 0,
                        pool = w.shared.shares.pool.pairs() != 0 ? 1 : 0;
    return phase == kOProj ? 0 : phase == kPooler ? units : units + pool;
}

// A phase's product, as the block has it.
struct DenseWork {
    const char* x;  // slots, by columns
    std::uint32_t x_bytes;
    Share tiles;
    std::uint32_t stages;
    std::uint32_t k_of_stage;
    // Where the thread's pair of sums goes for tile 0, and how far that of the next tile is; null: into the outbox, as
    // bf16.
    char* to;
    std::uint32_t tile_bytes;
};

template <class W>
__device__ __forceinline__ DenseWork dense_work(const W& w, Phase phase) {
    const Shape& s = w.shape();
    const ExchangeLayout& at = w.params.exchange;
    const BlockShares& shares = w.shared.shares;
    const std::uint32_t token = w.group_thread() / kChunkWords, pair = pair_place(w.group_thread() % kChunkWords);
    std::uint32_t k = s.hidden, slices = 1, slice = 0;
    std::uint64_t x = at.heads;
    DenseWork work{};
    if (phase == kOProj || phase == kUnpooler) {
        work.tiles = {2 * shares.units.begin, 2 * shares.units.end};
        k = phase == kOProj ? s.head_columns() : s.pooled_rows();
        x = phase == kOProj ? at.heads : at.combined;
    } else if (phase == kPooler) {
        work.tiles = shares.pool.tiles;
        slices = w.plan().pool_slices, slice = shares.pool.slice, x = at.x1;
        work.tile_bytes = kTokens * kTileRows * 4;
        work.to = w.slots(at.pool) + slice * s.pooled_rows() * kTokens * 4 + pair / 8 * work.tile_bytes +
                  (token * kTileRows + pair % 8 * 2) * 4;
    } else {
        work.tiles = shares.qkv.tiles;
        slices = w.plan().qkv_slices, slice = shares.qkv.slice, x = at.x5;
        work.tile_bytes = kTileRows * 4;
        work.to = w.slots(at.qkv) + ((slice * kTokens + token) * s.qkv_units() * s.head_dim + pair * 2) * 4;
    }
    work.k_of_stage = stage_k(k);
    work.stages = k / work.k_of_stage / slices;
    const bool busy = work.tiles.size() != 0 || (phase == kPooler && shares.pool.router.size() != 0);
    work.x_bytes = busy ? k / slices / kChunkK * kTokens * kChunkBytes : 0;
    work.x = w.slots(x) + slice * work.x_bytes;
    return work;
}

// Group: a phase's product. The wait for the first stage has a job of its own; later stages are waited for inside the
// compute job.
template <class W>
__device__ __forceinline__ void multiply(W& w, Phase phase) {
    const DenseWork work = dense_work(w, phase);
    if (work.x_bytes == 0) return;
    const Job wait_input = pick_job<MuseHopper::o_proj_wait_heads, MuseHopper::pooler_wait_input,
                                    MuseHopper::unpooler_wait_input, MuseHopper::qkv_wait_input>(phase);
    const Job wait_weights = pick_job<MuseHopper::o_proj_wait_weights, MuseHopper::pooler_wait_weights,
                                      MuseHopper::unpooler_wait_weights, MuseHopper::qkv_wait_weights>(phase);
    const Job compute = pick_job<MuseHopper::o_proj_compute, MuseHopper::pooler_compute, MuseHopper::unpooler_compute,
                                 MuseHopper::qkv_compute>(phase);
    if (phase == kOProj) w.meet(wait_input.site);  // the pool holds the attention's parts
    w.begin(wait_input);
    receive_block<sync::OnesBf16>(w, wait_input.site, work.x, w.shared.pool, work.x_bytes);
    w.end(wait_input);
    w.meet(wait_input.site);
    if (work.tiles.size() == 0) return;
    w.begin(wait_weights);
    w.shared.ring.wait_full(w.waiter, wait_weights.site, w.cursor);
    w.next(wait_weights, compute);
    if (work.to == nullptr) wait_outbox_empty(w, compute.site, outbox_use(w, phase));
    auto* outbox = reinterpret_cast<std::uint32_t*>(w.shared.pool + kOutboxAt) + w.group_thread();
    char* to = work.to + work.tiles.begin * work.tile_bytes;
#pragma unroll 1
    for (std::uint32_t left = work.tiles.size(); left != 0;) {
        const std::uint32_t tiles = min(2u, left);
        UnitSums sums;
        multiply_unit(w, compute.site, w.shared.pool, tiles, work.stages, work.k_of_stage, sums);
        const float2 value = reduce_unit(w, compute.site, sums);
        if (work.to == nullptr) {
            *outbox = sync::ZerosBf16::encode(pack_bf16(value.x, value.y));
            outbox += kGroupThreads;
        } else if (pair_place(w.group_thread() % kChunkWords) / 8 < tiles) {
            sync::send_slots(to, reinterpret_cast<const uint2&>(value));
            to += 2 * work.tile_bytes;
        }
        left -= tiles;
    }
    if (work.to == nullptr) mark_outbox_full(w);
    w.end(compute);
}

}  // namespace musetrace::megakernel::ops
