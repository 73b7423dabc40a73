// The two ends of a pass, of the target and of the draft: embedded tokens with the first layer's input norm, and the
// last norm with lm_head.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/ops/all_reduce.h"
#include "cpu/ops/qkv.h"
#include "cpu/ops/rows.h"

namespace musetrace::cpu::ops {

// 16 rows to the first layer's qkv: those in the residual, or those of the step's tokens.
struct Entry {
    template <class W>
    static void group(W& w) {
        w.template job<MuseLayer::entry_norm>([&] {
            for_own_rows(w, [&](std::uint32_t token, float* row) {
                if (w.launch.from_state) {
                    embed(w, w.rank.state.tokens[token], row);
                } else {
                    const float* given = w.input().residual.data() + std::size_t{token} * w.shape.hidden;
                    std::copy(given, given + w.shape.hidden, row);
                }
            });
            norm(w, w.rank.layers[0].input_norm, w.shape.rms_eps);
        });
        w.group_sync(MuseLayer::entry_norm);
        Qkv::group(w, target_projection(w, 0));
    }

    // The root and 15 masks, for the draft's first layer.
    template <class W>
    static void draft_group(W& w) {
        w.template job<MuseLayer::entry_norm>([&] {
            for_own_rows(w, [&](std::uint32_t token, float* row) {
                embed(w, token == 0 ? w.rank.state.tokens[0] : w.draft.mask_token, row);
            });
            norm(w, w.rank.draft.layers[0].input_norm, w.draft.rms_eps);
        });
        w.group_sync(MuseLayer::entry_norm);
        Qkv::group(w, draft_projection(w, 0));
    }

  private:
    // make(token, row) fills block.residual for the warp's tokens; the block whose turn it is keeps the row.
    template <class W, class Make>
    static void for_own_rows(W& w, Make make) {
        const std::uint32_t hidden = w.shape.hidden;
        for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
            float* row = &w.block.residual[std::size_t{token} * hidden];
            make(token, row);
            if (token % w.shape.blocks != w.block_id()) continue;
            std::copy(row, row + hidden, w.next().residual.begin() + std::size_t{token} * hidden);
        }
    }

    template <class W>
    static void norm(W& w, const float* weight, float eps) {
        const std::uint32_t hidden = w.shape.hidden;
        for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
            const std::size_t at = std::size_t{token} * hidden;
            norm_row(&w.block.residual[at], weight, hidden, eps, &w.block.x[at]);
        }
    }

    // The token's embedding behind its weightless norm.
    template <class W>
    static void embed(const W& w, std::uint32_t token, float* row) {
        const Matrix& table = w.rank.head.embed;
        table.unpack_row(table.values + std::size_t{token} * table.row_bytes(), 1, 0, row);
        const float scale = rms_scale(row, table.k, w.shape.rms_eps);
        for (std::uint32_t i = 0; i < table.k; ++i) row[i] *= scale;
    }
};

struct LmHead {
    template <class W>
    static void load(W& w) {
        const Share rows = w.share(w.shape.vocab);
        w.template job<MuseLayer::lm_head_load>(
            [&] { load_rows(w, MuseLayer::lm_head_load, w.rank.head.lm_head, rows); });
    }

    template <class W>
    static void group(W& w) {
        const std::uint32_t hidden = w.shape.hidden;
        const bool drafts = w.launch.kind == LaunchKind::kDraftHead;
        const float* norm = drafts ? w.rank.draft.norm : w.rank.head.final_norm;
        const float eps = drafts ? w.draft.rms_eps : w.shape.rms_eps;
        w.template job<MuseLayer::lm_head_norm>([&] {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                norm_row(w.input().residual.data() + std::size_t{token} * hidden, norm, hidden, eps,
                         &w.block.x[std::size_t{token} * hidden]);
            }
        });
        w.group_sync(MuseLayer::lm_head_norm);
        const Share rows = w.share(w.shape.vocab);
        wait_first_stage<MuseLayer::lm_head_wait_weights>(w);
        w.template job<MuseLayer::lm_head_compute>([&] {
            take_rows(w, MuseLayer::lm_head_compute, w.rank.head.lm_head, rows, 1,
                      [&](std::uint32_t row, const float* values) {
                          for (std::uint32_t token = 0; token < kTokens; ++token) {
                              const float* x = &w.block.x[std::size_t{token} * hidden];
                              const float logit = dot(values, x, hidden) * w.shape.output_multiplier;
                              w.rank.logits[std::size_t{token} * w.shape.vocab + row] =
                                  std::tanh(logit / w.shape.softcap) * w.shape.softcap;
                          }
                      });
        });
    }
};

}  // namespace musetrace::cpu::ops
