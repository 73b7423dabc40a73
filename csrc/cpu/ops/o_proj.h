// Out-projection (K-sharded: each rank has its own heads' columns) and stop 1: all-reduce, post-attention norm,
// residual gate, pre-FFN norm. In a draft layer the sum is added to the residual stream as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/ops/all_reduce.h"
#include "cpu/ops/rows.h"

namespace musetrace::cpu::ops {

struct OProj {
    struct Loader {
        template <class W>
        static void run(W& w) {
            const Share rows = w.share(w.shape.hidden);
            w.template job<MuseLayer::o_proj_load>([&] { load_rows(w, MuseLayer::o_proj_load, matrix(w), rows); });
        }
    };

    // Brings all heads of the rank, whichever block made them, into shared memory.
    struct Input {
        template <class W>
        static void run(W& w) {
            const std::vector<std::uint16_t>& heads = w.exchange().heads;
            const std::size_t count = std::size_t{kTokens} * matrix(w).k;
            w.template job<MuseLayer::o_proj_wait_heads>(
                [&] { GatherBf16::wait_full(w.waiter, MuseLayer::o_proj_wait_heads, heads.data(), count); });
            w.template job<MuseLayer::o_proj_load_input>([&] {
                for (std::size_t i = 0; i < count; ++i) {
                    w.block.all_heads[i] = bf16_to_float(GatherBf16::receive(&heads[i]));
                }
            });
            w.block.heads_full.arrive();
        }
    };

    struct Sender {
        template <class W>
        static void run(W& w) {
            w.template job<MuseLayer::o_proj_wait_output>(
                [&] { w.block.o_proj_done.wait_parity(w.waiter, MuseLayer::o_proj_wait_output, 0); });
            w.template job<MuseLayer::o_proj_send>(
                [&] { kStop1.send(w, w.share(w.shape.hidden), w.block.o_proj_out.data()); });
        }
    };

    struct Group {
        template <class W>
        static void run(W& w) {
            const Share rows = w.share(w.shape.hidden);
            w.template job<MuseLayer::o_proj_wait_input>(
                [&] { w.block.heads_full.wait_parity(w.waiter, MuseLayer::o_proj_wait_input, 0); });
            dense<MuseLayer::o_proj_wait_weights, MuseLayer::o_proj_compute>(
                w, matrix(w), rows, w.block.all_heads.data(), matrix(w).k, w.block.o_proj_out.data(), rows.size());
            w.block.o_proj_done.arrive();
            stop1(w, rows);
        }
    };

  private:
    template <class W>
    static const Matrix& matrix(const W& w) {
        return w.drafts() ? w.draft_weights().o : w.weights().o;
    }

    template <class W>
    static void stop1(W& w, Share columns) {
        w.template job<MuseLayer::stop1_wait_ranks>(
            [&] { kStop1.wait_ranks(w, MuseLayer::stop1_wait_ranks, columns); });
        w.template job<MuseLayer::stop1_sum>([&] { kStop1.sum(w, columns); });
        w.template job<MuseLayer::stop1_wait_rows>([&] { kStop1.wait_rows(w, MuseLayer::stop1_wait_rows); });
        w.template job<MuseLayer::stop1_norm>([&] {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                finish_token(w, token);
            }
        });
        w.group_sync(MuseLayer::stop1_norm);
    }

    template <class W>
    static void finish_token(W& w, std::uint32_t token) {
        const std::uint32_t hidden = w.shape.hidden;
        const std::size_t at = std::size_t{token} * hidden;
        std::vector<float> branch(hidden);
        kStop1.read_row(w, token, branch.data());
        const float* residual = &w.input().residual[at];
        float* out = &w.block.residual[at];
        if (w.drafts()) {
            for (std::uint32_t i = 0; i < hidden; ++i) out[i] = residual[i] + branch[i];
            return norm_row(out, w.draft_weights().mlp_norm, hidden, w.draft.rms_eps, &w.block.x[at]);
        }
        const LayerWeights& weights = w.weights();
        const float scale = rms_scale(branch.data(), hidden, w.shape.post_eps);
        for (std::uint32_t i = 0; i < hidden; ++i) {
            out[i] = weights.attn_alpha[i] * residual[i] + weights.attn_beta[i] * (branch[i] * scale);
        }
        norm_row(out, weights.pre_ffn_norm, hidden, w.shape.rms_eps, &w.block.x[at]);
    }
};

}  // namespace musetrace::cpu::ops
