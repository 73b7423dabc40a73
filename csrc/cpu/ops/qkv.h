// The next layer's qkv and gate projection, q/k norm, RoPE, and the KV write. A block takes whole heads (units of
// head_dim rows: q heads, k heads, v heads, gate heads), so norm and rotation stay in the block.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/ops/rows.h"

namespace musetrace::cpu::ops {

// A projection for layer `layer`, whose input rows stand in block.x.
struct Qkv {
    std::uint32_t layer;

    template <class W>
    void load(W& w) const {
        if (units(w).empty()) return;
        w.template job<MuseLayer::qkv_load>([&] {
            for (const std::uint32_t unit : units(w)) {
                load_rows(w, MuseLayer::qkv_load, w.rank.layers[layer].qkvg, rows(w, unit));
            }
        });
    }

    template <class W>
    void group(W& w) const {
        if (units(w).empty()) return;
        const std::vector<std::uint32_t> own = units(w);
        const std::uint32_t stride = static_cast<std::uint32_t>(own.size()) * w.shape.head_dim;
        wait_first_stage<MuseLayer::qkv_wait_weights>(w);
        w.template job<MuseLayer::qkv_compute>([&] {
            for (std::uint32_t place = 0; place < own.size(); ++place) {
                const Share unit_rows = rows(w, own[place]);
                take_rows(w, MuseLayer::qkv_compute, w.rank.layers[layer].qkvg, unit_rows, 1,
                          [&](std::uint32_t row, const float* values) {
                              const std::uint32_t column = place * w.shape.head_dim + row - unit_rows.begin;
                              for (std::uint32_t token = 0; token < kTokens; ++token) {
                                  const float* x = &w.block.x[std::size_t{token} * w.shape.hidden];
                                  w.block.qkv_out[std::size_t{token} * stride + column] =
                                      dot(values, x, w.shape.hidden);
                              }
                          });
            }
        });
        w.group_sync(MuseLayer::qkv_compute);
        w.template job<MuseLayer::qkv_rope>([&] { for_own_rows(w, own, &Qkv::finish<W>); });
        w.template job<MuseLayer::kv_write>([&] { for_own_rows(w, own, &Qkv::store<W>); });
    }

  private:
    enum class Part : std::uint8_t { kQ, kK, kV, kGate };

    template <class W>
    static std::vector<std::uint32_t> units(const W& w) {
        std::vector<std::uint32_t> own;
        for (std::uint32_t unit = w.block_id(); unit < w.shape.qkv_units(); unit += w.shape.blocks) own.push_back(unit);
        return own;
    }

    template <class W>
    static Share rows(const W& w, std::uint32_t unit) {
        return {unit * w.shape.head_dim, (unit + 1) * w.shape.head_dim};
    }

    template <class W>
    static Part part(const W& w, std::uint32_t unit, std::uint32_t* head) {
        const std::uint32_t q = w.shape.q_heads, kv = w.shape.kv_heads;
        if (unit < q) return *head = unit, Part::kQ;
        if (unit < q + kv) return *head = unit - q, Part::kK;
        if (unit < q + 2 * kv) return *head = unit - q - kv, Part::kV;
        return *head = unit - q - 2 * kv, Part::kGate;
    }

    // The warp's two tokens of each of the block's heads.
    template <class W>
    void for_own_rows(W& w, const std::vector<std::uint32_t>& own,
                      void (Qkv::*body)(W&, Part, std::uint32_t, std::uint32_t, float*) const) const {
        const std::size_t stride = own.size() * w.shape.head_dim;
        for (std::size_t place = 0; place < own.size(); ++place) {
            std::uint32_t head = 0;
            const Part which = part(w, own[place], &head);
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                (this->*body)(w, which, head, token, &w.block.qkv_out[token * stride + place * w.shape.head_dim]);
            }
        }
    }

    // q and k: weightless norm, scale of q, rotation in sliding-window layers; q and gate go to the next launch.
    template <class W>
    void finish(W& w, Part which, std::uint32_t head, std::uint32_t token, float* row) const {
        const std::uint32_t d = w.shape.head_dim;
        if (which == Part::kQ || which == Part::kK) {
            const float scale = rms_scale(row, d, w.shape.rms_eps) * (which == Part::kQ ? w.shape.qk_scale : 1.0f);
            for (std::uint32_t i = 0; i < d; ++i) row[i] *= scale;
            if (!w.rank.layers[layer].global_attention) rotate(row, d, w.launch.position + token, w.shape.rope_theta);
        }
        if (which == Part::kK || which == Part::kV) return;
        std::vector<std::uint16_t>& out = which == Part::kQ ? w.next().q : w.next().gate;
        for (std::uint32_t i = 0; i < d; ++i) {
            out[std::size_t{token} * w.shape.head_columns() + head * d + i] = float_to_bf16(row[i]);
        }
    }

    template <class W>
    void store(W& w, Part which, std::uint32_t head, std::uint32_t token, float* row) const {
        if (which != Part::kK && which != Part::kV) return;
        KvLayer& cache = w.rank.kv[layer];
        std::vector<std::uint16_t>& out = which == Part::kK ? cache.k : cache.v;
        const std::uint32_t d = w.shape.head_dim;
        const std::size_t at = (std::size_t{head} * w.shape.capacity + w.launch.position + token) * d;
        for (std::uint32_t i = 0; i < d; ++i) out[at + i] = float_to_bf16(row[i]);
    }

    // Rotary embedding by halves: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), as transformers' rotate_half does.
    static void rotate(float* row, std::uint32_t d, std::uint32_t position, float theta) {
        for (std::uint32_t i = 0; i < d / 2; ++i) {
            const float frequency = 1.0f / std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(d));
            const float angle = static_cast<float>(position) * frequency;
            const float c = std::cos(angle), s = std::sin(angle), low = row[i], high = row[i + d / 2];
            row[i] = low * c - high * s;
            row[i + d / 2] = high * c + low * s;
        }
    }
};

}  // namespace musetrace::cpu::ops
