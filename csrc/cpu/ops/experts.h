// The two expert GEMMs, both sharded on N, with stop 3 between them: gate and up rows with SwiGLU, gather of the
// features, down rows. Tiles (one stage's rows of one expert) are dealt to the blocks in turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cpu/ops/rows.h"
#include "cpu/routing.h"

namespace musetrace::cpu::ops {

struct Tile {
    std::uint32_t place;  // in the list of active experts
    std::uint32_t expert;
    Share rows;
};

// The block's tiles of a stack of expert matrices, in the order in which they go through the ring.
template <class W>
std::vector<Tile> own_tiles(const W& w, const std::vector<ActiveExpert>& active, const Matrix& matrix) {
    const std::uint32_t most = rows_per_stage(matrix, w.block.ring.stage_bytes());
    std::vector<Tile> tiles;
    std::uint32_t number = 0;
    for (std::uint32_t place = 0; place < active.size(); ++place) {
        for (std::uint32_t row = 0; row < matrix.rows; row += most, ++number) {
            if (number % w.shape.blocks != w.block_id()) continue;
            tiles.push_back({place, active[place].id, {row, std::min(row + most, matrix.rows)}});
        }
    }
    return tiles;
}

template <class W>
std::vector<ActiveExpert> wait_routed(W& w, std::uint32_t site) {
    w.block.routed.wait_parity(w.waiter, site, 0);
    return active_experts(w.shape, w.block.expert_ids);
}

struct Experts {
    struct Loader {
        template <class W>
        static void run(W& w) {
            std::vector<ActiveExpert> active;
            w.template job<MuseLayer::gemm1_wait_tiles>([&] { active = wait_routed(w, MuseLayer::gemm1_wait_tiles); });
            load<MuseLayer::gemm1_load>(w, active, w.weights().gate_up);
            load<MuseLayer::gemm2_load>(w, active, w.weights().down);
        }
    };

    // During attention: touches the first tile of the experts that this layer used in the step before.
    struct Prefetch {
        template <class W>
        static void run(W& w) {
            const std::vector<std::uint32_t>& previous = w.rank.previous_experts[w.launch.layer];
            if (previous.empty()) return;
            w.template job<MuseLayer::gemm1_prefetch>([&] {
                for (std::size_t i = w.block_id(); i < previous.size(); i += w.shape.blocks) {
                    const Matrix matrix = w.weights().gate_up.at(previous[i]);
                    const std::size_t bytes = std::min<std::size_t>(std::size_t{matrix.rows} * matrix.value_bytes(),
                                                                    w.block.ring.stage_bytes());
                    for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(matrix.values + at);
                }
            });
        }
    };

    // Stop 3: brings the features of one expert after the other into shared memory, as they land.
    struct Input {
        template <class W>
        static void run(W& w) {
            const std::vector<ActiveExpert> active = wait_routed(w, MuseLayer::stop3_wait_ranks);
            const std::uint32_t k = w.shape.intermediate;
            w.template job<MuseLayer::stop3_wait_ranks>([&] {
                for (const ActiveExpert& expert : active) {
                    for (const std::uint32_t pair : expert.pairs) {
                        const std::size_t at = std::size_t{pair} * k;
                        const std::uint16_t* slots = w.exchange().features.data() + at;
                        GatherBf16::wait_full(w.waiter, MuseLayer::stop3_wait_ranks, slots, k);
                        for (std::uint32_t i = 0; i < k; ++i) {
                            w.block.features[at + i] = bf16_to_float(GatherBf16::receive(slots + i));
                        }
                    }
                    w.block.experts_landed.advance();
                }
            });
        }
    };

    struct Group {
        template <class W>
        static void run(W& w) {
            const std::vector<ActiveExpert> active = wait_routed(w, MuseLayer::stop2_topk);
            if (w.block_id() == 0 && w.group_warp() == 0) remember(w, active);
            gemm1(w, active);
            gemm2(w, active);
        }
    };

  private:
    template <std::uint32_t kJob, class W>
    static void load(W& w, const std::vector<ActiveExpert>& active, const cpu::Experts& experts) {
        const std::vector<Tile> tiles = own_tiles(w, active, experts.first);
        if (tiles.empty()) return;
        w.template job<kJob>([&] {
            for (const Tile& tile : tiles) load_rows(w, kJob, experts.at(tile.expert), tile.rows);
        });
    }

    template <class W>
    static void remember(W& w, const std::vector<ActiveExpert>& active) {
        std::vector<std::uint32_t> ids;
        for (const ActiveExpert& expert : active) ids.push_back(expert.id);
        w.rank.next_experts = std::move(ids);
    }

    // Results go out as the tiles are done: the send job lies within the compute job.
    template <class W>
    static void gemm1(W& w, const std::vector<ActiveExpert>& active) {
        const std::vector<Tile> tiles = own_tiles(w, active, w.weights().gate_up.first);
        if (tiles.empty()) return;
        wait_first_stage<MuseLayer::gemm1_wait_weights>(w);
        w.template job<MuseLayer::gemm1_compute>([&] {
            bool sending = false;
            for (const Tile& tile : tiles) {
                const cpu::Experts& experts = w.weights().gate_up;
                const Matrix matrix = experts.at(tile.expert);
                const float scale = experts.scale(tile.expert);
                take_rows(w, MuseLayer::gemm1_compute, matrix, tile.rows, 2,
                          [&](std::uint32_t row, const float* values) {
                              if (!std::exchange(sending, true)) MUSETRACE_BEGIN(w.stamps, MuseLayer::gemm1_send);
                              for (const std::uint32_t pair : active[tile.place].pairs) {
                                  const float* x = &w.block.pooled[std::size_t{pair / w.shape.top_k} * matrix.k];
                                  const float gate = dot(values, x, matrix.k) * scale;
                                  const float up = dot(values + matrix.k, x, matrix.k) * scale;
                                  const std::uint16_t bits = float_to_bf16(gate * sigmoid(gate) * up);
                                  const std::uint32_t feature = w.rank_id() * w.shape.features() + row / 2;
                                  const std::size_t at = std::size_t{pair} * w.shape.intermediate + feature;
                                  for (std::uint32_t peer = 0; peer < w.shape.ranks; ++peer) {
                                      GatherBf16::send(&w.exchange_of(peer).features[at], bits);
                                  }
                              }
                          });
            }
            if (sending) MUSETRACE_END(w.stamps, MuseLayer::gemm1_send);
        });
    }

    template <class W>
    static void gemm2(W& w, const std::vector<ActiveExpert>& active) {
        const std::vector<Tile> tiles = own_tiles(w, active, w.weights().down.first);
        if (tiles.empty()) return;
        w.template job<MuseLayer::gemm2_wait_input>(
            [&] { w.block.experts_landed.wait_for(w.waiter, MuseLayer::gemm2_wait_input, tiles.front().place + 1); });
        wait_first_stage<MuseLayer::gemm2_wait_weights>(w);
        w.template job<MuseLayer::gemm2_compute>([&] {
            bool sending = false;
            for (const Tile& tile : tiles) {
                const cpu::Experts& experts = w.weights().down;
                const Matrix matrix = experts.at(tile.expert);
                const float scale = experts.scale(tile.expert);
                w.block.experts_landed.wait_for(w.waiter, MuseLayer::gemm2_compute, tile.place + 1);
                take_rows(w, MuseLayer::gemm2_compute, matrix, tile.rows, 1,
                          [&](std::uint32_t row, const float* values) {
                              if (!std::exchange(sending, true)) MUSETRACE_BEGIN(w.stamps, MuseLayer::gemm2_send);
                              for (const std::uint32_t pair : active[tile.place].pairs) {
                                  const float* x = &w.block.features[std::size_t{pair} * matrix.k];
                                  const std::uint16_t bits = float_to_bf16(dot(values, x, matrix.k) * scale);
                                  const std::uint32_t column = w.rank_id() * w.shape.pooled_rows() + row;
                                  const std::size_t at = std::size_t{pair} * w.shape.moe_hidden + column;
                                  for (std::uint32_t peer = 0; peer < w.shape.ranks; ++peer) {
                                      GatherBf16::send(&w.exchange_of(peer).outputs[at], bits);
                                  }
                              }
                          });
            }
            if (sending) MUSETRACE_END(w.stamps, MuseLayer::gemm2_send);
        });
    }
};

}  // namespace musetrace::cpu::ops
