// Attention of 16 rows over the KV cache, of the target or of the draft. A block takes whole query heads; its eight
// group warps split the keys and merge. In global layers the loader and the input warp bring K and V; in sliding-window
// layers each group warp brings its own keys.
//
// A key belongs to a warp by its position, not by its cache row or by where the pass begins. So what a token gets does
// not depend on the tree or the pass that it is verified in, to the last bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/warp.h"

namespace musetrace::cpu::ops {

// What attention reads, and its sizes.
struct AttentionInput {
    std::uint32_t q_heads;
    std::uint32_t kv_heads;
    std::uint32_t head_dim;
    std::uint32_t window;  // 0: the whole context
    const KvLayer& kv;
    const std::vector<std::uint16_t>& q;
    const std::uint16_t* gate;  // null: neither norm nor gate behind the softmax

    std::uint32_t columns() const { return q_heads * head_dim; }
};

template <class W>
AttentionInput attention_input(const W& w) {
    const std::uint32_t layer = w.launch.layer;
    if (w.drafts()) {
        const DraftShape& d = w.draft;
        return {d.q_heads, d.kv_heads, d.head_dim, d.window, w.rank.draft_kv[layer], w.input().draft_q, nullptr};
    }
    const Shape& s = w.shape;
    const std::uint32_t window = w.weights().global_attention ? 0 : s.window;
    return {s.q_heads, s.kv_heads, s.head_dim, window, w.rank.kv[layer], w.input().q, w.input().gate.data()};
}

struct Attention {
    struct Loader {
        template <class W>
        static void run(W& w) {
            const AttentionInput in = attention_input(w);
            if (in.window != 0 || !has_heads(w, in)) return;
            w.template job<MuseLayer::attention_load_k>([&] { copy_keys(w, in, in.kv.k, rows(w, in), w.block.k); });
            w.block.kv_full.arrive();
        }
    };

    struct Input {
        template <class W>
        static void run(W& w) {
            const AttentionInput in = attention_input(w);
            if (in.window != 0 || !has_heads(w, in)) return;
            w.template job<MuseLayer::attention_load_v>([&] { copy_keys(w, in, in.kv.v, rows(w, in), w.block.v); });
            w.block.kv_full.arrive();
        }
    };

    struct Group {
        template <class W>
        static void run(W& w) {
            const AttentionInput in = attention_input(w);
            if (!has_heads(w, in)) return;
            const std::vector<std::uint32_t> own = own_rows(w, in);
            if (in.window == 0) {
                w.template job<MuseLayer::attention_wait_kv>(
                    [&] { w.block.kv_full.wait_parity(w.waiter, MuseLayer::attention_wait_kv, 0); });
            } else {
                w.template job<MuseLayer::attention_load_window>([&] {
                    copy_keys(w, in, in.kv.k, own, w.block.k);
                    copy_keys(w, in, in.kv.v, own, w.block.v);
                });
            }
            w.template job<MuseLayer::attention_compute>(
                [&] { for_heads(w, in, [&](std::uint32_t head) { attend(w, in, head, own); }); });
            w.group_sync(MuseLayer::attention_merge);
            w.template job<MuseLayer::attention_merge>([&] { merge(w, in); });
            w.block.merged.arrive();
        }
    };

    struct Sender {
        template <class W>
        static void run(W& w) {
            const AttentionInput in = attention_input(w);
            if (!has_heads(w, in)) return;
            w.template job<MuseLayer::attention_wait_merge>(
                [&] { w.block.merged.wait_parity(w.waiter, MuseLayer::attention_wait_merge, 0); });
            w.template job<MuseLayer::attention_send>([&] {
                for_heads(w, in, [&](std::uint32_t head) {
                    for (std::uint32_t token = 0; token < kTokens; ++token) {
                        for (std::uint32_t d = 0; d < in.head_dim; ++d) {
                            const std::size_t at = std::size_t{token} * in.columns() + head * in.head_dim + d;
                            GatherBf16::send(&w.exchange().heads[at], float_to_bf16(w.block.heads[at]));
                        }
                    }
                });
            });
        }
    };

  private:
    template <class W>
    static bool has_heads(const W& w, const AttentionInput& in) {
        return w.block_id() < in.q_heads;
    }

    // Query heads of the block: block_id, block_id + blocks, ...
    template <class W, class Body>
    static void for_heads(const W& w, const AttentionInput& in, Body body) {
        for (std::uint32_t head = w.block_id(); head < in.q_heads; head += w.shape.blocks) body(head);
    }

    static std::uint32_t kv_head(const AttentionInput& in, std::uint32_t head) {
        return head / (in.q_heads / in.kv_heads);
    }

    // The position of a cache row: those of the pass are its rows in order.
    template <class W>
    static std::uint32_t position_of(const W& w, std::uint32_t row) {
        return row < w.launch.position ? row : w.launch.rows.position[row - w.launch.position];
    }

    // Cache rows that any of the 16 rows may see.
    template <class W>
    static std::vector<std::uint32_t> rows(const W& w, const AttentionInput& in) {
        const std::uint32_t end = w.launch.position + kTokens;
        const bool all = in.window == 0 || w.launch.position + 1 <= in.window;
        std::vector<std::uint32_t> found;
        for (std::uint32_t row = all ? 0 : w.launch.position + 1 - in.window; row < end; ++row) found.push_back(row);
        return found;
    }

    // Of these, the warp's: runs of four positions in turn.
    template <class W>
    static std::vector<std::uint32_t> own_rows(const W& w, const AttentionInput& in) {
        std::vector<std::uint32_t> own;
        for (const std::uint32_t row : rows(w, in)) {
            if (position_of(w, row) / 4 % kGroupWarps == w.group_warp()) own.push_back(row);
        }
        return own;
    }

    template <class W>
    static bool sees(const W& w, const AttentionInput& in, std::uint32_t token, std::uint32_t row) {
        if (row >= w.launch.position && !(w.launch.rows.sees[token] >> (row - w.launch.position) & 1u)) return false;
        return in.window == 0 || w.launch.rows.position[token] < position_of(w, row) + in.window;
    }

    // Cache rows of the KV heads that the block's query heads use, as floats.
    template <class W>
    static void copy_keys(const W& w, const AttentionInput& in, const std::vector<std::uint16_t>& cache,
                          const std::vector<std::uint32_t>& rows, std::vector<float>& staged) {
        std::uint32_t done = ~0u;
        for_heads(w, in, [&](std::uint32_t head) {
            const std::uint32_t kv = kv_head(in, head);
            if (kv == done) return;
            done = kv;
            for (const std::uint32_t row : rows) {
                const std::size_t begin = (std::size_t{kv} * w.shape.capacity + row) * in.head_dim;
                for (std::size_t i = begin; i < begin + in.head_dim; ++i) staged[i] = bf16_to_float(cache[i]);
            }
        });
    }

    template <class W>
    static float* partial_row(const W& w, const AttentionInput& in, std::uint32_t warp, std::uint32_t head,
                              std::uint32_t token) {
        const std::size_t row = (std::size_t{warp} * in.q_heads + head) * kTokens + token;
        return w.block.partial.data() + row * (2 + in.head_dim);
    }

    // Softmax of one head over the warp's own keys: running maximum, sum of exponentials, weighted values.
    template <class W>
    static void attend(W& w, const AttentionInput& in, std::uint32_t head, const std::vector<std::uint32_t>& own) {
        const std::uint32_t d = in.head_dim;
        const float scale = 1.0f / std::sqrt(static_cast<float>(d));
        const std::size_t base = std::size_t{kv_head(in, head)} * w.shape.capacity * d;
        std::vector<float> query(d), scores(own.size());
        for (std::uint32_t token = 0; token < kTokens; ++token) {
            const std::uint16_t* q = in.q.data() + std::size_t{token} * in.columns() + head * d;
            for (std::uint32_t i = 0; i < d; ++i) query[i] = bf16_to_float(q[i]);
            float* out = partial_row(w, in, w.group_warp(), head, token);
            std::fill(out, out + 2 + d, 0.0f);
            out[0] = -std::numeric_limits<float>::infinity();
            for (std::size_t at = 0; at < own.size(); ++at) {
                if (!sees(w, in, token, own[at])) continue;
                scores[at] = dot(query.data(), &w.block.k[base + std::size_t{own[at]} * d], d) * scale;
                out[0] = std::max(out[0], scores[at]);
            }
            for (std::size_t at = 0; at < own.size(); ++at) {
                if (!sees(w, in, token, own[at])) continue;
                const float p = std::exp(scores[at] - out[0]);
                const float* value = &w.block.v[base + std::size_t{own[at]} * d];
                out[1] += p;
                for (std::uint32_t i = 0; i < d; ++i) out[2 + i] += p * value[i];
            }
        }
    }

    // Puts the eight warps' parts together, then the per-head norm and the gate, where there is one.
    template <class W>
    static void merge(W& w, const AttentionInput& in) {
        const std::uint32_t d = in.head_dim;
        for_heads(w, in, [&](std::uint32_t head) {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                float top = -std::numeric_limits<float>::infinity();
                for (std::uint32_t part = 0; part < kGroupWarps; ++part) {
                    top = std::max(top, partial_row(w, in, part, head, token)[0]);
                }
                float sum = 0.0f;
                const std::size_t at = std::size_t{token} * in.columns() + head * d;
                float* out = w.block.heads.data() + at;
                std::fill(out, out + d, 0.0f);
                for (std::uint32_t part = 0; part < kGroupWarps; ++part) {
                    const float* row = partial_row(w, in, part, head, token);
                    const float weight = std::exp(row[0] - top);
                    sum += weight * row[1];
                    for (std::uint32_t i = 0; i < d; ++i) out[i] += weight * row[2 + i];
                }
                for (std::uint32_t i = 0; i < d; ++i) out[i] /= sum;
                const float norm = in.gate == nullptr ? 1.0f : rms_scale(out, d, w.shape.rms_eps);
                for (std::uint32_t i = 0; i < d; ++i) {
                    const float gate = in.gate == nullptr ? 1.0f : sigmoid(bf16_to_float(in.gate[at + i]));
                    out[i] = round_bf16(out[i] * norm * gate);
                }
            }
        });
    }
};

}  // namespace musetrace::cpu::ops
