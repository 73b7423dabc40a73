// Out-projection (K-sharded: each rank has its own heads' columns) and stop 1: all-reduce, post-attention norm,
// residual gate, pre-FFN norm.
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
            w.template job<MuseLayer::o_proj_load>([&] { load_rows(w, MuseLayer::o_proj_load, w.weights().o, rows); });
        }
    };

    // Brings all heads of the rank, whichever block made them, into shared memory.
    struct Input {
        template <class W>
        static void run(W& w) {
            const std::vector<std::uint16_t>& heads = w.exchange().heads;
            w.template job<MuseLayer::o_proj_wait_heads>(
                [&] { GatherBf16::wait_full(w.waiter, MuseLayer::o_proj_wait_heads, heads.data(), heads.size()); });
            w.template job<MuseLayer::o_proj_load_input>([&] {
                for (std::size_t i = 0; i < heads.size(); ++i) {
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
                w, w.weights().o, rows, w.block.all_heads.data(), w.shape.head_columns(), w.block.o_proj_out.data(),
                rows.size());
            w.block.o_proj_done.arrive();
            stop1(w, rows);
        }
    };

  private:
    template <class W>
    static void stop1(W& w, Share columns) {
        w.template job<MuseLayer::stop1_wait_ranks>(
            [&] { kStop1.wait_ranks(w, MuseLayer::stop1_wait_ranks, columns); });
        w.template job<MuseLayer::stop1_sum>([&] { kStop1.sum(w, columns); });
        w.template job<MuseLayer::stop1_wait_rows>([&] { kStop1.wait_rows(w, MuseLayer::stop1_wait_rows); });
        w.template job<MuseLayer::stop1_norm>([&] {
            const std::uint32_t hidden = w.shape.hidden;
            std::vector<float> branch(hidden);
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                kStop1.read_row(w, token, branch.data());
                const float scale = rms_scale(branch.data(), hidden, w.shape.post_eps);
                const float* residual = w.input().residual.data() + std::size_t{token} * hidden;
                float* out = w.block.residual.data() + std::size_t{token} * hidden;
                for (std::uint32_t i = 0; i < hidden; ++i) {
                    out[i] = w.weights().attn_alpha[i] * residual[i] + w.weights().attn_beta[i] * (branch[i] * scale);
                }
                norm_row(out, w.weights().pre_ffn_norm, hidden, w.shape.rms_eps,
                         w.block.x.data() + std::size_t{token} * hidden);
            }
        });
        w.group_sync(MuseLayer::stop1_norm);
    }
};

}  // namespace musetrace::cpu::ops
