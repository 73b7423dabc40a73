// Pooler (hidden to moe_hidden) and router, both N-sharded, and stop 2: gather of pooled rows and logits, pre-expert
// norm, top-k.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/ops/all_reduce.h"
#include "cpu/ops/rows.h"
#include "cpu/routing.h"

namespace musetrace::cpu::ops {

struct Pooler {
    struct Loader {
        template <class W>
        static void run(W& w) {
            const Share pooled = w.share(w.shape.pooled_rows()), experts = w.share(w.shape.router_rows());
            if (pooled.size() != 0) {
                w.template job<MuseLayer::pooler_load>(
                    [&] { load_rows(w, MuseLayer::pooler_load, w.weights().pooler, pooled); });
            }
            if (experts.size() != 0) {
                w.template job<MuseLayer::router_load>(
                    [&] { load_rows(w, MuseLayer::router_load, w.weights().router, experts); });
            }
        }
    };

    struct Group {
        template <class W>
        static void run(W& w) {
            const Share pooled = w.share(w.shape.pooled_rows()), experts = w.share(w.shape.router_rows());
            dense<MuseLayer::pooler_wait_weights, MuseLayer::pooler_compute>(w, w.weights().pooler, pooled,
                                                                             w.block.x.data(), w.shape.hidden,
                                                                             w.block.pooler_out.data(), pooled.size());
            dense<MuseLayer::router_wait_weights, MuseLayer::router_compute>(w, w.weights().router, experts,
                                                                             w.block.x.data(), w.shape.hidden,
                                                                             w.block.router_out.data(), experts.size());
            w.block.router_done.arrive();
            stop2(w);
        }
    };

    struct Sender {
        template <class W>
        static void run(W& w) {
            w.template job<MuseLayer::router_wait_output>(
                [&] { w.block.router_done.wait_parity(w.waiter, MuseLayer::router_wait_output, 0); });
            w.template job<MuseLayer::router_send>([&] {
                for (std::uint32_t peer = 0; peer < w.shape.ranks; ++peer) send_to(w, w.exchange_of(peer));
            });
        }
    };

  private:
    template <class W>
    static void send_to(W& w, ExchangeCopy& peer) {
        const Share pooled = w.share(w.shape.pooled_rows()), experts = w.share(w.shape.router_rows());
        const std::uint32_t first_pooled = w.rank_id() * w.shape.pooled_rows() + pooled.begin;
        const std::uint32_t first_expert = w.rank_id() * w.shape.router_rows() + experts.begin;
        for (std::uint32_t token = 0; token < kTokens; ++token) {
            for (std::uint32_t i = 0; i < pooled.size(); ++i) {
                GatherBf16::send(&peer.pooled[std::size_t{token} * w.shape.moe_hidden + first_pooled + i],
                                 float_to_bf16(w.block.pooler_out[std::size_t{token} * pooled.size() + i]));
            }
            for (std::uint32_t i = 0; i < experts.size(); ++i) {
                GatherF32::send(&peer.logits[std::size_t{token} * w.shape.experts + first_expert + i],
                                float_to_bits(w.block.router_out[std::size_t{token} * experts.size() + i]));
            }
        }
    }

    template <class W>
    static void stop2(W& w) {
        const std::uint32_t k = w.shape.moe_hidden, experts = w.shape.experts, first = w.first_token();
        const ExchangeCopy& exchange = w.exchange();
        w.template job<MuseLayer::stop2_wait_ranks>([&] {
            GatherBf16::wait_full(w.waiter, MuseLayer::stop2_wait_ranks, &exchange.pooled[std::size_t{first} * k],
                                  std::size_t{kTokensPerWarp} * k);
            GatherF32::wait_full(w.waiter, MuseLayer::stop2_wait_ranks, &exchange.logits[std::size_t{first} * experts],
                                 std::size_t{kTokensPerWarp} * experts);
        });
        w.template job<MuseLayer::stop2_norm>([&] {
            std::vector<float> row(k);
            for (std::uint32_t token = first; token < first + kTokensPerWarp; ++token) {
                const std::size_t at = std::size_t{token} * k;
                for (std::uint32_t i = 0; i < k; ++i) {
                    row[i] = bf16_to_float(GatherBf16::receive(&exchange.pooled[at + i]));
                }
                norm_row(row.data(), w.weights().pre_expert_norm, k, w.shape.rms_eps, &w.block.pooled[at]);
            }
        });
        w.template job<MuseLayer::stop2_topk>([&] {
            std::vector<float> scores(experts);
            for (std::uint32_t token = first; token < first + kTokensPerWarp; ++token) {
                for (std::uint32_t e = 0; e < experts; ++e) {
                    const float logit =
                        bits_to_float(GatherF32::receive(&exchange.logits[std::size_t{token} * experts + e]));
                    scores[e] = sigmoid(logit * w.shape.output_multiplier);
                }
                const std::size_t at = std::size_t{token} * w.shape.top_k;
                route_token(w.shape, scores.data(), w.weights().router_bias, &w.block.expert_ids[at],
                            &w.block.expert_weights[at]);
            }
        });
        w.block.routed.arrive();
    }
};

}  // namespace musetrace::cpu::ops
