// The two ends of a step: the first layer's input norm over the embedded tokens, and final norm with lm_head.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/ops/all_reduce.h"
#include "cpu/ops/qkv.h"
#include "cpu/ops/rows.h"

namespace musetrace::cpu::ops {

// Embedded tokens (already in the residual) to the first layer's qkv.
struct Entry {
    template <class W>
    static void group(W& w) {
        const std::uint32_t hidden = w.shape.hidden;
        w.template job<MuseLayer::entry_norm>([&] {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                const float* row = w.input().residual.data() + std::size_t{token} * hidden;
                norm_row(row, w.rank.layers[0].input_norm, hidden, w.shape.rms_eps,
                         &w.block.x[std::size_t{token} * hidden]);
                if (token % w.shape.blocks == w.block_id()) {
                    std::copy(row, row + hidden, w.next().residual.begin() + std::size_t{token} * hidden);
                }
            }
        });
        w.group_sync(MuseLayer::entry_norm);
        Qkv{0}.group(w);
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
        w.template job<MuseLayer::lm_head_norm>([&] {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                norm_row(w.input().residual.data() + std::size_t{token} * hidden, w.rank.head.final_norm, hidden,
                         w.shape.rms_eps, &w.block.x[std::size_t{token} * hidden]);
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
