// The two expert GEMMs, both sharded on N between ranks. A tile is 64 rows of one work item (an expert and up to eight
// of its pairs). Four ways of warps, each over the same tiles in the same order: the loader brings weights, the input
// warps bring the tokens' rows, the group multiplies, and the sender adds up the group's K groups, applies SwiGLU (GEMM
// 1) and sends, while the group is at the next tile.
#pragma once

#include "megakernel/ops/pooler.cuh"
#include "megakernel/ops/tiles.cuh"

namespace musetrace::megakernel::ops {

struct Experts {
    template <class W>
    static __device__ __forceinline__ void load(W& w, ExpertRing::Producer& ring) {
        w.template job<MuseHopper::gemm1_wait_tiles>(
            [&] { w.shared.routed.wait_parity(w.waiter, MuseHopper::gemm1_wait_tiles, 0); });
        TileWalk<W> walk(w);
        // Products of bf16 keep up with all that HBM gives.
        if (w.params.bf16_experts) ring.set_limit(sync::kInFlightBytes);
#pragma unroll 1
        for (std::uint32_t second = 0; second < 2; ++second) load_gemm(w, ring, walk, second != 0);
        ring.set_limit(w.params.in_flight_bytes);
    }

    // Warps 1 and 2: every second row each.
    template <class W>
    static __device__ __forceinline__ void input(W& w) {
        w.shared.routed.wait_parity(w.waiter, MuseHopper::gemm1_load_rows, 0);
        wait_pool_free(w, MuseHopper::gemm1_load_rows);
        TileWalk<W> walk(w);
        // The group brings the first tile's rows itself: it has nothing else to do, and eight warps to do it with.
        std::uint32_t row = walk.has(false) ? walk.take(false).item.count : 0;
        std::uint32_t number = row != 0 ? 1 : 0;
#pragma unroll 1
        for (std::uint32_t second = 0; second < 2; ++second) {
            bool first = true;
            while (walk.has(second != 0)) {
                w.forget();
                if (first) w.begin(pick_job<MuseHopper::gemm1_load_rows, MuseHopper::stop3_wait_ranks>(second));
                load_rows(w, walk.take(second != 0), row, number++);
                if (first && second != 0) {
                    MUSETRACE_END(w.stamps, MuseHopper::stop3_wait_ranks);
                    MUSETRACE_BEGIN(w.stamps, MuseHopper::gemm2_load_rows);
                }
                first = false;
            }
            if (!first) w.end(pick_job<MuseHopper::gemm1_load_rows, MuseHopper::gemm2_load_rows>(second));
        }
    }

    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        // Its own items are written by other warps of the group.
        w.shared.routed.wait_parity(w.waiter, MuseHopper::stop2_topk, 0);
        TileWalk<W> walk(w);
        std::uint32_t row = 0, tile = 0;
#pragma unroll 1
        for (std::uint32_t second = 0; second < 2; ++second) multiply_gemm(w, walk, row, tile, second != 0);
        // The sums' place is scratch again.
#pragma unroll
        for (std::uint32_t buffer = 0; buffer < 2; ++buffer) {
            const std::uint32_t uses = (tile + 1 - buffer) / 2;
            if (uses != 0) w.shared.sums_empty[buffer].wait_parity(w.waiter, MuseHopper::gemm2_compute, (uses - 1) % 2);
        }
    }

  private:
    // The rows' place holds the router's outbox until it is sent.
    template <class W>
    static __device__ __forceinline__ void wait_pool_free(W& w, std::uint32_t site) {
        if (w.shared.shares.pool.pairs() == 0) return;
        w.shared.outbox_empty.wait_parity(w.waiter, site, outbox_use(w, kPooler) % 2);
    }

    // Rows of the block's first tile, by the group, into the first slots of the pool.
    template <class W>
    static __device__ __forceinline__ void load_first_rows(W& w, const Tile& tile) {
        constexpr std::uint32_t kLoads = 8;
        constexpr std::uint32_t kSite = MuseHopper::gemm1_wait_input;
        wait_pool_free(w, kSite);
        const std::uint32_t bytes = w.shape().moe_hidden * 2, loads = bytes / kLoadBytes;
        const std::uint32_t steps = loads > kGroupThreads ? 2 : 1;  // of a row
#pragma unroll 1
        for (std::uint32_t first = 0; first < tile.item.count; first += kLoads / steps) {
            const std::uint32_t left = min(kLoads, (tile.item.count - first) * steps);
            const std::uint32_t count = w.group_thread() < loads ? left : 0;
            const auto offset = [&](std::uint32_t i) {
                return (i % steps * kGroupThreads + w.group_thread()) * kLoadBytes;
            };
            uint4 words[kLoads];
            sync::receive_slots<sync::OnesBf16>(w.waiter, kSite, words, count, [&](std::uint32_t i) {
                const std::uint32_t pair = w.shared.pairs[tile.item.first + first + i / steps];
                return w.slots(w.params.exchange.expert_x) + token_of(w, pair) * bytes + offset(i);
            });
#pragma unroll
            for (std::uint32_t i = 0; i < kLoads; ++i) {
                if (i >= count) continue;
                *reinterpret_cast<uint4*>(w.shared.pool + (first + i / steps) * kRowBytes + offset(i)) = words[i];
            }
        }
        w.meet(kSite);
        if (w.group_thread() < kInputWarps * sync::kArrivalsOfWarp) w.shared.tile_full[0].arrive();
    }

    template <class W>
    static __device__ __forceinline__ std::uint32_t token_of(const W& w, std::uint32_t pair) {
        return pair >> (w.shape().top_k == 8 ? 3 : 2);
    }

    // K of a GEMM, and how its matrices lie.
    template <class W>
    static __device__ __forceinline__ std::uint32_t k_of(const W& w, bool second) {
        return second ? w.shape().intermediate : w.shape().moe_hidden;
    }
    template <class W>
    static __device__ __forceinline__ std::uint32_t stage_bytes(const W& w, std::uint32_t k) {
        return w.params.bf16_experts ? Bf16Unit::bytes(stage_k(k)) : Nvfp4Unit::kUnits * Nvfp4Unit::bytes(stage_k(k));
    }
    // A bf16 stage is one unit of 16 rows, so a tile is four times as many.
    template <class W>
    static __device__ __forceinline__ std::uint32_t stages_of_tile(const W& w, std::uint32_t k) {
        return k / stage_k(k) * (w.params.bf16_experts ? Nvfp4Unit::kUnits : 1);
    }

    template <class W>
    static __device__ __forceinline__ void load_gemm(W& w, ExpertRing::Producer& ring, TileWalk<W>& walk, bool second) {
        if (!walk.has(second)) return;
        w.begin(pick_job<MuseHopper::gemm1_load, MuseHopper::gemm2_load>(second));
        const std::uint32_t k = k_of(w, second), bytes = stage_bytes(w, k), stages = stages_of_tile(w, k);
        const std::uint32_t site = second ? MuseHopper::gemm2_load : MuseHopper::gemm1_load;
        const char* experts = second ? w.rank.layer.down : w.rank.layer.gate_up;
        const ExpertTiles& of_item = w.shared.shares.expert_tiles;
        const std::uint32_t tiles = second ? of_item.gemm2 : of_item.gemm1;
#pragma unroll 1
        while (walk.has(second)) {
            const Tile tile = walk.take(second);
            const char* source =
                experts + (std::size_t{tile.item.expert} * tiles + tile.index) * std::size_t{stages} * bytes;
#pragma unroll 1
            for (std::uint32_t stage = 0; stage < stages; ++stage, source += bytes) {
                ring.fill(w.waiter, site, source, bytes);
            }
        }
        w.end(pick_job<MuseHopper::gemm1_load, MuseHopper::gemm2_load>(second));
    }

    // The rows of a tile's pairs, those of this warp, into the next slots of the pool.
    template <class W>
    static __device__ __forceinline__ void load_rows(W& w, const Tile& tile, std::uint32_t& row, std::uint32_t number) {
        constexpr std::uint32_t kLoads = 8;
        const std::uint32_t bytes = k_of(w, tile.second) * 2;
        const std::uint32_t site = tile.second ? MuseHopper::stop3_wait_ranks : MuseHopper::gemm1_load_rows;
#pragma unroll 1
        for (std::uint32_t i = 0; i < tile.item.count; ++i, ++row) {
            if (row % 2 != w.warp - 1) continue;
            const std::uint32_t pair = w.shared.pairs[tile.item.first + i], slot = row % kRowSlots;
            const char* from = tile.second
                                   ? w.slots(w.params.exchange.features) + std::size_t{pair} * bytes
                                   : w.slots(w.params.exchange.expert_x) + std::size_t{token_of(w, pair)} * bytes;
            char* to = w.shared.pool + slot * kRowBytes;
            w.shared.rows_empty[slot].wait_parity(w.waiter, site, (row / kRowSlots % 2) ^ 1u);
#pragma unroll 1
            for (std::uint32_t at = 0; at < bytes; at += kLoads * kLanes * kLoadBytes) {
                const auto offset = [&](std::uint32_t load) { return at + (load * kLanes + w.lane) * kLoadBytes; };
                uint4 words[kLoads];
                sync::receive_slots<sync::OnesBf16>(w.waiter, site, words,
                                                    sync::count_below(offset(0), bytes, kLanes * kLoadBytes),
                                                    [&](std::uint32_t load) { return from + offset(load); });
#pragma unroll
                for (std::uint32_t load = 0; load < kLoads; ++load) {
                    if (offset(load) < bytes) *reinterpret_cast<uint4*>(to + offset(load)) = words[load];
                }
            }
        }
        w.shared.tile_full[number % kTileBarriers].arrive_as_warp(w.lane);
    }

    using Sums = float[kUnitsPerWarp][4];

    template <class W>
    static __device__ __forceinline__ void multiply_gemm(W& w, TileWalk<W>& walk, std::uint32_t& row,
                                                         std::uint32_t& number, bool second) {
        if (!walk.has(second)) return;
        const std::uint32_t wait_input = second ? MuseHopper::gemm2_wait_input : MuseHopper::gemm1_wait_input;
        const std::uint32_t compute = second ? MuseHopper::gemm2_compute : MuseHopper::gemm1_compute;
        const std::uint32_t k = k_of(w, second), stage = stage_k(k);
        const bool busy = w.group_warp() % kGroupsOfK * kGroupK < stage, packed = busy && !w.params.bf16_experts;
        Tile tile = walk.take(second);
        w.begin(pick_job<MuseHopper::gemm1_wait_input, MuseHopper::gemm2_wait_input>(second));
        if (!second) load_first_rows(w, tile);
        wait_rows(w, wait_input, number);
        w.next(pick_job<MuseHopper::gemm1_wait_input, MuseHopper::gemm2_wait_input>(second),
               pick_job<MuseHopper::gemm1_wait_weights, MuseHopper::gemm2_wait_weights>(second));
        w.shared.ring.wait_full(w.waiter, compute, w.cursor);
        w.next(pick_job<MuseHopper::gemm1_wait_weights, MuseHopper::gemm2_wait_weights>(second),
               pick_job<MuseHopper::gemm1_compute, MuseHopper::gemm2_compute>(second));
        StageReader<ExpertRing> reader(w.shared.ring, w.waiter, compute, stage, w.group_warp(), w.lane);
        if (packed) reader.start(w.cursor);
#pragma unroll 1
        while (true) {
            const bool another = walk.has(second);
            // Looked up before the products, not behind them, where nothing else is to do.
            const Tile following = another ? walk.take(second) : tile;
            const std::uint32_t count = tile.item.count;
            Sums sums = {};
            // Columns beyond the pairs read any row; nobody takes their sums.
            const std::uint32_t slot = (row + min(w.lane / 4, count - 1)) % kRowSlots;
            const char* x =
                w.shared.pool + slot * kRowBytes + w.lane % 4 * kLoadBytes + w.group_warp() % kGroupsOfK * kGroupK * 2;
            if (packed) {
                multiply_tile(reader, w.cursor, w.params.scale_factor, x, stage, k / stage, another, sums);
            } else if (w.params.bf16_experts) {
                multiply_bf16(w, compute, k, x, busy, sums);
            } else {
                give_back(w, compute, k / stage);
            }
            __syncwarp();
            if constexpr (sync::kArrivalsOfWarp == 1) {
                if (w.lane < count) w.shared.rows_empty[(row + w.lane) % kRowSlots].arrive();
            } else {
                for (std::uint32_t i = 0; i < count; ++i) w.shared.rows_empty[(row + i) % kRowSlots].arrive();
            }
            row += count;
            leave_sums(w, compute, number++, sums);
            if (!another) break;
            w.forget();
            tile = following;
            wait_rows(w, wait_input, number);
        }
        w.end(pick_job<MuseHopper::gemm1_compute, MuseHopper::gemm2_compute>(second));
    }

    // The rows of the block's tile `number`.
    template <class W>
    static __device__ __forceinline__ void wait_rows(W& w, std::uint32_t site, std::uint32_t number) {
        w.shared.tile_full[number % kTileBarriers].wait_parity(w.waiter, site, number / kTileBarriers % 2);
    }

    // Stages that are too narrow for this warp's K group.
    template <class W>
    static __device__ __forceinline__ void give_back(W& w, std::uint32_t site, std::uint32_t stages) {
#pragma unroll 1
        for (std::uint32_t stage = 0; stage < stages; ++stage) {
            w.shared.ring.wait_full(w.waiter, site, w.cursor);
            w.shared.ring.mark_empty(w.cursor);
        }
    }

    // A stage is one unit: its row group works, the other gives it back.
    template <class W>
    static __device__ __forceinline__ void multiply_bf16(W& w, std::uint32_t site, std::uint32_t k, const char* x,
                                                         bool busy, Sums& sums) {
        const std::uint32_t stage = stage_k(k), first = w.group_warp() % kGroupsOfK * kGroupK / kFragmentK;
#pragma unroll
        for (std::uint32_t unit = 0; unit < Nvfp4Unit::kUnits; ++unit) {
            const bool mine = busy && unit / kUnitsPerWarp == w.group_warp() / kGroupsOfK;
#pragma unroll 1
            for (std::uint32_t at = 0; at < k; at += stage) {
                const char* weights = w.shared.ring.wait_full(w.waiter, site, w.cursor);
                if (mine) {
#pragma unroll
                    for (std::uint32_t step = 0; step < kStepsPerWarp; step += 2) {
                        const uint4 b = *reinterpret_cast<const uint4*>(x + at * 2 + step / 2 * kChunkBytes);
                        multiply_add(sums[unit % kUnitsPerWarp], load_bf16(weights, first + step, w.lane), b.x, b.y);
                        multiply_add(sums[unit % kUnitsPerWarp], load_bf16(weights, first + step + 1, w.lane), b.z,
                                     b.w);
                    }
                }
                w.shared.ring.mark_empty(w.cursor);
            }
        }
    }

    // For the sender: [K group][unit][lane].
    template <class W>
    static __device__ __forceinline__ void leave_sums(W& w, std::uint32_t site, std::uint32_t number,
                                                      const Sums& sums) {
        const std::uint32_t buffer = number % 2;
        w.shared.sums_empty[buffer].wait_parity(w.waiter, site, (number / 2 % 2) ^ 1u);
        auto* to = reinterpret_cast<float4*>(w.shared.sums[buffer]);
        const std::uint32_t k_group = w.group_warp() % kGroupsOfK, rows = w.group_warp() / kGroupsOfK;
#pragma unroll
        for (std::uint32_t unit = 0; unit < kUnitsPerWarp; ++unit) {
            to[(k_group * Nvfp4Unit::kUnits + rows * kUnitsPerWarp + unit) * kLanes + w.lane] = {
                sums[unit][0], sums[unit][1], sums[unit][2], sums[unit][3]};
        }
        w.shared.sums_full[buffer].arrive_as_warp(w.lane);
    }
};

}  // namespace musetrace::megakernel::ops
