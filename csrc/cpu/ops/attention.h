// Attention of 16 new tokens over the KV cache. A block takes whole query heads; its eight group warps split the
// keys and merge. In global layers the loader and the input warp bring K and V; in sliding-window layers each group
// warp brings its own keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/warp.h"

namespace musetrace::cpu::ops {

struct Attention {
    // Positions that any of the 16 tokens may see.
    template <class W>
    static Share keys(const W& w) {
        const std::uint32_t end = w.launch.position + kTokens;
        const bool all = w.weights().global_attention || w.launch.position + 1 <= w.shape.window;
        return {all ? 0 : w.launch.position + 1 - w.shape.window, end};
    }

    template <class W>
    static bool has_heads(const W& w) {
        return w.block_id() < w.shape.q_heads;
    }

    // Query heads of the block: block_id, block_id + blocks, ...
    template <class W, class Body>
    static void for_heads(const W& w, Body body) {
        for (std::uint32_t head = w.block_id(); head < w.shape.q_heads; head += w.shape.blocks) body(head);
    }

    template <class W>
    static std::uint32_t kv_head(const W& w, std::uint32_t head) {
        return head / (w.shape.q_heads / w.shape.kv_heads);
    }

    // Cache rows [keys) of the KV heads that the block's query heads use, as floats.
    template <class W>
    static void copy_keys(const W& w, const std::vector<std::uint16_t>& cache, Share keys, std::vector<float>& staged) {
        std::uint32_t done = ~0u;
        for_heads(w, [&](std::uint32_t head) {
            const std::uint32_t kv = kv_head(w, head);
            if (kv == done) return;
            done = kv;
            const std::size_t row = std::size_t{kv} * w.shape.capacity;
            const std::size_t begin = (row + keys.begin) * w.shape.head_dim, end = (row + keys.end) * w.shape.head_dim;
            for (std::size_t i = begin; i < end; ++i) staged[i] = bf16_to_float(cache[i]);
        });
    }

    struct Loader {
        template <class W>
        static void run(W& w) {
            if (!w.weights().global_attention || !has_heads(w)) return;
            w.template job<MuseLayer::attention_load_k>(
                [&] { copy_keys(w, w.rank.kv[w.launch.layer].k, keys(w), w.block.k); });
            w.block.kv_full.arrive();
        }
    };

    struct Input {
        template <class W>
        static void run(W& w) {
            if (!w.weights().global_attention || !has_heads(w)) return;
            w.template job<MuseLayer::attention_load_v>(
                [&] { copy_keys(w, w.rank.kv[w.launch.layer].v, keys(w), w.block.v); });
            w.block.kv_full.arrive();
        }
    };

    struct Group {
        template <class W>
        static void run(W& w) {
            if (!has_heads(w)) return;
            const Share all = keys(w);
            const Share part = block_share(all.size(), w.group_warp(), kGroupWarps);
            const Share own{all.begin + part.begin, all.begin + part.end};
            if (w.weights().global_attention) {
                w.template job<MuseLayer::attention_wait_kv>(
                    [&] { w.block.kv_full.wait_parity(w.waiter, MuseLayer::attention_wait_kv, 0); });
            } else {
                w.template job<MuseLayer::attention_load_window>([&] {
                    copy_keys(w, w.rank.kv[w.launch.layer].k, own, w.block.k);
                    copy_keys(w, w.rank.kv[w.launch.layer].v, own, w.block.v);
                });
            }
            w.template job<MuseLayer::attention_compute>(
                [&] { for_heads(w, [&](std::uint32_t head) { attend(w, head, own); }); });
            w.group_sync(MuseLayer::attention_merge);
            w.template job<MuseLayer::attention_merge>([&] { merge(w); });
            w.block.merged.arrive();
        }
    };

    struct Sender {
        template <class W>
        static void run(W& w) {
            if (!has_heads(w)) return;
            w.template job<MuseLayer::attention_wait_merge>(
                [&] { w.block.merged.wait_parity(w.waiter, MuseLayer::attention_wait_merge, 0); });
            w.template job<MuseLayer::attention_send>([&] {
                const std::uint32_t columns = w.shape.head_columns();
                for_heads(w, [&](std::uint32_t head) {
                    for (std::uint32_t token = 0; token < kTokens; ++token) {
                        for (std::uint32_t d = 0; d < w.shape.head_dim; ++d) {
                            const std::size_t at = std::size_t{token} * columns + head * w.shape.head_dim + d;
                            GatherBf16::send(&w.exchange().heads[at], float_to_bf16(w.block.heads[at]));
                        }
                    }
                });
            });
        }
    };

  private:
    template <class W>
    static float* partial_row(const W& w, std::uint32_t warp, std::uint32_t head, std::uint32_t token) {
        const std::size_t row = (std::size_t{warp} * w.shape.q_heads + head) * kTokens + token;
        return w.block.partial.data() + row * (2 + w.shape.head_dim);
    }

    // Softmax of one head over the warp's own keys: running maximum, sum of exponentials, weighted values.
    template <class W>
    static void attend(W& w, std::uint32_t head, Share own) {
        const std::uint32_t d = w.shape.head_dim;
        const float scale = 1.0f / std::sqrt(static_cast<float>(d));
        const std::size_t base = std::size_t{kv_head(w, head)} * w.shape.capacity * d;
        std::vector<float> query(d), scores(own.size());
        for (std::uint32_t token = 0; token < kTokens; ++token) {
            const std::uint16_t* q = w.input().q.data() + std::size_t{token} * w.shape.head_columns() + head * d;
            for (std::uint32_t i = 0; i < d; ++i) query[i] = bf16_to_float(q[i]);
            const Share seen = visible(w, token, own);
            float* out = partial_row(w, w.group_warp(), head, token);
            std::fill(out, out + 2 + d, 0.0f);
            out[0] = -std::numeric_limits<float>::infinity();
            for (std::uint32_t key = seen.begin; key < seen.end; ++key) {
                scores[key - seen.begin] = dot(query.data(), &w.block.k[base + std::size_t{key} * d], d) * scale;
                out[0] = std::max(out[0], scores[key - seen.begin]);
            }
            for (std::uint32_t key = seen.begin; key < seen.end; ++key) {
                const float p = std::exp(scores[key - seen.begin] - out[0]);
                const float* value = &w.block.v[base + std::size_t{key} * d];
                out[1] += p;
                for (std::uint32_t i = 0; i < d; ++i) out[2 + i] += p * value[i];
            }
        }
    }

    // Of `own`, the keys that this token sees: not after it and, in a sliding layer, less than a window back.
    template <class W>
    static Share visible(const W& w, std::uint32_t token, Share own) {
        const std::uint32_t position = w.launch.position + token;
        const bool all = w.weights().global_attention || position + 1 <= w.shape.window;
        const std::uint32_t first = all ? 0 : position + 1 - w.shape.window;
        const std::uint32_t begin = std::max(own.begin, first), end = std::min(own.end, position + 1);
        return {begin, std::max(begin, end)};
    }

    // Puts the eight warps' parts together, then the per-head norm and the gate.
    template <class W>
    static void merge(W& w) {
        const std::uint32_t d = w.shape.head_dim;
        for_heads(w, [&](std::uint32_t head) {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                float top = -std::numeric_limits<float>::infinity();
                for (std::uint32_t part = 0; part < kGroupWarps; ++part) {
                    top = std::max(top, partial_row(w, part, head, token)[0]);
                }
                float sum = 0.0f;
                const std::size_t at = std::size_t{token} * w.shape.head_columns() + head * d;
                float* out = w.block.heads.data() + at;
                std::fill(out, out + d, 0.0f);
                for (std::uint32_t part = 0; part < kGroupWarps; ++part) {
                    const float* row = partial_row(w, part, head, token);
                    const float weight = std::exp(row[0] - top);
                    sum += weight * row[1];
                    for (std::uint32_t i = 0; i < d; ++i) out[i] += weight * row[2 + i];
                }
                for (std::uint32_t i = 0; i < d; ++i) out[i] /= sum;
                const float norm = rms_scale(out, d, w.shape.rms_eps);
                for (std::uint32_t i = 0; i < d; ++i) {
                    out[i] = round_bf16(out[i] * norm * sigmoid(bf16_to_float(w.input().gate[at + i])));
                }
            }
        });
    }
};

}  // namespace musetrace::cpu::ops
