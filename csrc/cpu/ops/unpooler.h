// Stop 4 (gather of the expert outputs, post-expert norm, weighted sum), unpooler (K-sharded), and stop 5:
// all-reduce, post-FFN norm, residual gate, and the next layer's input norm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/ops/all_reduce.h"
#include "cpu/ops/rows.h"

namespace musetrace::cpu::ops {

struct Unpooler {
    struct Loader {
        template <class W>
        static void run(W& w) {
            const Share rows = w.share(w.shape.hidden);
            w.template job<MuseLayer::unpooler_load>(
                [&] { load_rows(w, MuseLayer::unpooler_load, w.weights().unpooler, rows); });
        }
    };

    struct Sender {
        template <class W>
        static void run(W& w) {
            w.template job<MuseLayer::unpooler_wait_output>(
                [&] { w.block.unpooler_done.wait_parity(w.waiter, MuseLayer::unpooler_wait_output, 0); });
            w.template job<MuseLayer::unpooler_send>(
                [&] { kStop5.send(w, w.share(w.shape.hidden), w.block.unpooler_out.data()); });
        }
    };

    struct Group {
        template <class W>
        static void run(W& w) {
            const Share rows = w.share(w.shape.hidden);
            stop4(w);
            dense<MuseLayer::unpooler_wait_weights, MuseLayer::unpooler_compute>(
                w, w.weights().unpooler, rows, w.block.combined.data(), w.shape.pooled_rows(),
                w.block.unpooler_out.data(), rows.size());
            w.block.unpooler_done.arrive();
            stop5(w, rows);
        }
    };

  private:
    template <class W>
    static void stop4(W& w) {
        const std::uint32_t k = w.shape.moe_hidden, pairs = kTokensPerWarp * w.shape.top_k;
        const std::uint16_t* outputs = &w.exchange().outputs[std::size_t{w.first_token()} * w.shape.top_k * k];
        w.template job<MuseLayer::stop4_wait_ranks>(
            [&] { GatherBf16::wait_full(w.waiter, MuseLayer::stop4_wait_ranks, outputs, std::size_t{pairs} * k); });
        w.template job<MuseLayer::stop4_combine>([&] {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                combine(w, token);
            }
        });
        w.group_sync(MuseLayer::stop4_combine);
    }

    // Post-expert norm of each (token, expert) over the whole row, then the weighted sum, of which the rank keeps the
    // columns that its unpooler reads. The norm's input is rounded to bf16, as the model does.
    template <class W>
    static void combine(W& w, std::uint32_t token) {
        const std::uint32_t k = w.shape.moe_hidden, kept = w.shape.pooled_rows(), first = w.rank_id() * kept;
        std::vector<float> row(k), sum(kept, 0.0f);
        for (std::uint32_t place = 0; place < w.shape.top_k; ++place) {
            const std::uint32_t pair = token * w.shape.top_k + place;
            const std::uint16_t* output = &w.exchange().outputs[std::size_t{pair} * k];
            for (std::uint32_t i = 0; i < k; ++i) {
                row[i] = round_bf16(w.weights().post_expert_norm[i] * bf16_to_float(GatherBf16::receive(output + i)));
            }
            const float scale = rms_scale(row.data(), k, w.shape.post_eps);
            const float weight = w.block.expert_weights[pair];
            for (std::uint32_t i = 0; i < kept; ++i) sum[i] += row[first + i] * scale * weight;
        }
        for (std::uint32_t i = 0; i < kept; ++i) w.block.combined[std::size_t{token} * kept + i] = round_bf16(sum[i]);
    }

    template <class W>
    static void stop5(W& w, Share columns) {
        w.template job<MuseLayer::stop5_wait_ranks>(
            [&] { kStop5.wait_ranks(w, MuseLayer::stop5_wait_ranks, columns); });
        w.template job<MuseLayer::stop5_sum>([&] { kStop5.sum(w, columns); });
        w.template job<MuseLayer::stop5_wait_rows>([&] { kStop5.wait_rows(w, MuseLayer::stop5_wait_rows); });
        w.template job<MuseLayer::stop5_norm>([&] {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                finish_token(w, token);
            }
        });
        w.group_sync(MuseLayer::stop5_norm);
    }

    // Every block has the whole row; the one whose turn it is keeps the new residual.
    template <class W>
    static void finish_token(W& w, std::uint32_t token) {
        const std::uint32_t hidden = w.shape.hidden;
        const LayerWeights& weights = w.weights();
        std::vector<float> branch(hidden), out(hidden);
        kStop5.read_row(w, token, branch.data());
        for (std::uint32_t i = 0; i < hidden; ++i) branch[i] = round_bf16(weights.post_ffn_norm[i] * branch[i]);
        const float scale = rms_scale(branch.data(), hidden, w.shape.post_eps);
        const float* residual = w.block.residual.data() + std::size_t{token} * hidden;
        for (std::uint32_t i = 0; i < hidden; ++i) {
            out[i] = weights.ffn_alpha[i] * residual[i] + weights.ffn_beta[i] * (branch[i] * scale);
        }
        if (token % w.shape.blocks == w.block_id()) {
            std::copy(out.begin(), out.end(), w.next().residual.begin() + std::size_t{token} * hidden);
        }
        keep_feature(w, token, out);
        if (w.launch.layer + 1 < w.shape.layers) {
            norm_row(out.data(), w.rank.layers[w.launch.layer + 1].input_norm, hidden, w.shape.rms_eps,
                     w.block.x.data() + std::size_t{token} * hidden);
        }
    }

    // What the draft's context is made of, where this is one of its layers.
    template <class W>
    static void keep_feature(W& w, std::uint32_t token, const std::vector<float>& row) {
        const DraftShape& d = w.draft;
        if (token % w.shape.blocks != w.block_id()) return;
        for (std::uint32_t place = 0; place < d.num_targets; ++place) {
            if (d.targets[place] != w.launch.layer) continue;
            const std::size_t at = (std::size_t{token} * d.num_targets + place) * w.shape.hidden;
            for (std::uint32_t i = 0; i < w.shape.hidden; ++i) w.rank.features[at + i] = float_to_bf16(row[i]);
        }
    }
};

}  // namespace musetrace::cpu::ops
