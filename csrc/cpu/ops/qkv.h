// Projection of 16 rows to heads, q/k norm, RoPE, and the KV write: of a target layer (with its gate), of a draft
// layer, and of the draft's context (keys and values alone). A block takes whole heads (units of head_dim rows: q
// heads, k heads, v heads, gate heads), so norm and rotation stay in the block.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/ops/rows.h"

namespace musetrace::cpu::ops {

struct Projection {
    const Matrix* matrix;
    std::uint32_t q_heads;
    std::uint32_t kv_heads;
    std::uint32_t head_dim;
    bool gated;           // gate heads stand behind the v heads
    const float* q_norm;  // [head_dim] factors behind the norm; null: none
    const float* k_norm;
    float q_scale;
    float rms_eps;
    float rope_theta;  // 0: no rotation
    KvLayer* cache;
    std::vector<std::uint16_t>* q_out;  // null: keys and values alone
    std::vector<std::uint16_t>* gate_out;
    std::uint32_t first_row;  // of the cache, for row 0
    std::uint32_t num_rows;   // rows that are kept
    const std::uint32_t* positions;

    std::uint32_t num_units() const { return q_heads + 2 * kv_heads + (gated ? q_heads : 0); }

    // Units of a block, every blocks-th, in the order in which their rows go through the ring.
    template <class W>
    std::vector<std::uint32_t> own_units(const W& w) const {
        std::vector<std::uint32_t> own;
        const std::uint32_t first = q_out == nullptr ? q_heads : 0;
        for (std::uint32_t unit = first + w.block_id(); unit < num_units(); unit += w.shape.blocks) own.push_back(unit);
        return own;
    }

    template <class W>
    void load(W& w, std::uint32_t site) const {
        for (const std::uint32_t unit : own_units(w)) load_rows(w, site, *matrix, rows_of(unit));
    }

    // Products with the rows in block.x, to out [token][unit of the block][head_dim].
    template <class W>
    void multiply(W& w, std::uint32_t site, float* out) const {
        const std::vector<std::uint32_t> own = own_units(w);
        const std::size_t stride = own.size() * head_dim;
        for (std::uint32_t place = 0; place < own.size(); ++place) {
            const Share rows = rows_of(own[place]);
            take_rows(w, site, *matrix, rows, 1, [&](std::uint32_t row, const float* values) {
                const std::uint32_t column = place * head_dim + row - rows.begin;
                for (std::uint32_t token = 0; token < kTokens; ++token) {
                    const float* x = &w.block.x[std::size_t{token} * w.shape.hidden];
                    out[token * stride + column] = dot(values, x, w.shape.hidden);
                }
            });
        }
    }

    // The warp's two tokens: norm, scale of q, rotation. q and gate go to the next launch.
    template <class W>
    void finish(W& w, float* out) const {
        for_own(w, out, [&](Part part, std::uint32_t head, std::uint32_t token, float* row) {
            if (part == Part::kQ || part == Part::kK) turn(part, token, row);
            if (part == Part::kQ) keep(*q_out, head, token, row);
            if (part == Part::kGate) keep(*gate_out, head, token, row);
        });
    }

    // The warp's two tokens: keys and values into the cache.
    template <class W>
    void store(W& w, float* out) const {
        for_own(w, out, [&](Part part, std::uint32_t head, std::uint32_t token, float* row) {
            if (token >= num_rows || (part != Part::kK && part != Part::kV)) return;
            std::vector<std::uint16_t>& to = part == Part::kK ? cache->k : cache->v;
            const std::size_t at = (std::size_t{head} * w.shape.capacity + first_row + token) * head_dim;
            for (std::uint32_t i = 0; i < head_dim; ++i) to[at + i] = float_to_bf16(row[i]);
        });
    }

  private:
    enum class Part : std::uint8_t { kQ, kK, kV, kGate };

    Share rows_of(std::uint32_t unit) const { return {unit * head_dim, (unit + 1) * head_dim}; }

    Part part_of(std::uint32_t unit, std::uint32_t* head) const {
        if (unit < q_heads) return *head = unit, Part::kQ;
        if (unit < q_heads + kv_heads) return *head = unit - q_heads, Part::kK;
        if (unit < q_heads + 2 * kv_heads) return *head = unit - q_heads - kv_heads, Part::kV;
        return *head = unit - q_heads - 2 * kv_heads, Part::kGate;
    }

    template <class W, class Body>
    void for_own(const W& w, float* out, Body body) const {
        const std::vector<std::uint32_t> own = own_units(w);
        const std::size_t stride = own.size() * head_dim;
        for (std::size_t place = 0; place < own.size(); ++place) {
            std::uint32_t head = 0;
            const Part part = part_of(own[place], &head);
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                body(part, head, token, &out[token * stride + place * head_dim]);
            }
        }
    }

    void turn(Part part, std::uint32_t token, float* row) const {
        const float* norm = part == Part::kQ ? q_norm : k_norm;
        const float scale = rms_scale(row, head_dim, rms_eps) * (part == Part::kQ ? q_scale : 1.0f);
        for (std::uint32_t i = 0; i < head_dim; ++i) row[i] *= norm == nullptr ? scale : scale * norm[i];
        if (rope_theta != 0.0f) rotate(row, head_dim, positions[token], rope_theta);
    }

    void keep(std::vector<std::uint16_t>& to, std::uint32_t head, std::uint32_t token, const float* row) const {
        const std::size_t at = (std::size_t{token} * q_heads + head) * head_dim;
        for (std::uint32_t i = 0; i < head_dim; ++i) to[at + i] = float_to_bf16(row[i]);
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

// The projection for target layer `layer`.
template <class W>
Projection target_projection(const W& w, std::uint32_t layer) {
    const Shape& s = w.shape;
    const LayerWeights& weights = w.rank.layers[layer];
    return {&weights.qkvg,
            s.q_heads,
            s.kv_heads,
            s.head_dim,
            true,
            nullptr,
            nullptr,
            s.qk_scale,
            s.rms_eps,
            weights.global_attention ? 0.0f : s.rope_theta,
            &w.rank.kv[layer],
            &w.next().q,
            &w.next().gate,
            w.launch.position,
            kTokens,
            w.launch.rows.position};
}

// The projection of the 16 rows of a draft pass for draft layer `layer`.
template <class W>
Projection draft_projection(const W& w, std::uint32_t layer) {
    const DraftShape& d = w.draft;
    const DraftLayerWeights& weights = w.rank.draft.layers[layer];
    return {&weights.qkv,
            d.q_heads,
            d.kv_heads,
            d.head_dim,
            false,
            weights.q_norm,
            weights.k_norm,
            1.0f,
            d.rms_eps,
            d.rope_theta,
            &w.rank.draft_kv[layer],
            &w.next().draft_q,
            nullptr,
            w.launch.position,
            kTokens,
            w.launch.rows.position};
}

// A projection of the rows in block.x with its stamps.
struct Qkv {
    template <class W>
    static void load(W& w, const Projection& projection) {
        if (projection.own_units(w).empty()) return;
        w.template job<MuseLayer::qkv_load>([&] { projection.load(w, MuseLayer::qkv_load); });
    }

    template <class W>
    static void group(W& w, const Projection& projection) {
        if (projection.own_units(w).empty()) return;
        float* out = w.block.qkv_out.data();
        wait_first_stage<MuseLayer::qkv_wait_weights>(w);
        w.template job<MuseLayer::qkv_compute>([&] { projection.multiply(w, MuseLayer::qkv_compute, out); });
        w.group_sync(MuseLayer::qkv_compute);
        w.template job<MuseLayer::qkv_rope>([&] { projection.finish(w, out); });
        w.template job<MuseLayer::kv_write>([&] { projection.store(w, out); });
    }
};

}  // namespace musetrace::cpu::ops
