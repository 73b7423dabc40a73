// The MLP of a draft layer: gate and up (N-sharded), SwiGLU, the rank's features from all its blocks, down (K-sharded
// by the same features, so nothing goes between ranks before the all-reduce), and the next layer's input norm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cpu/ops/all_reduce.h"
#include "cpu/ops/rows.h"

namespace musetrace::cpu::ops {

struct Mlp {
    struct Loader {
        template <class W>
        static void run(W& w) {
            const Share features = w.share(w.draft.intermediate), columns = w.share(w.shape.hidden);
            if (features.size() != 0) {
                w.template job<MuseLayer::gate_up_load>(
                    [&] { load_rows(w, MuseLayer::gate_up_load, w.draft_weights().gate_up, pairs_of(features)); });
            }
            w.template job<MuseLayer::down_load>(
                [&] { load_rows(w, MuseLayer::down_load, w.draft_weights().down, columns); });
        }
    };

    // Brings the rank's features, whichever block made them, into shared memory.
    struct Input {
        template <class W>
        static void run(W& w) {
            const std::vector<std::uint16_t>& features = w.exchange().mlp_features;
            w.template job<MuseLayer::down_wait_features>([&] {
                GatherBf16::wait_full(w.waiter, MuseLayer::down_wait_features, features.data(), features.size());
            });
            w.template job<MuseLayer::down_load_input>([&] {
                for (std::size_t i = 0; i < features.size(); ++i) {
                    w.block.mlp_features[i] = bf16_to_float(GatherBf16::receive(&features[i]));
                }
            });
            w.block.features_full.arrive();
        }
    };

    struct Sender {
        template <class W>
        static void run(W& w) {
            w.template job<MuseLayer::down_wait_output>(
                [&] { w.block.down_done.wait_parity(w.waiter, MuseLayer::down_wait_output, 0); });
            w.template job<MuseLayer::down_send>(
                [&] { kStop5.send(w, w.share(w.shape.hidden), w.block.down_out.data()); });
        }
    };

    struct Group {
        template <class W>
        static void run(W& w) {
            const Share columns = w.share(w.shape.hidden);
            gate_up(w);
            w.template job<MuseLayer::down_wait_input>(
                [&] { w.block.features_full.wait_parity(w.waiter, MuseLayer::down_wait_input, 0); });
            dense<MuseLayer::down_wait_weights, MuseLayer::down_compute>(
                w, w.draft_weights().down, columns, w.block.mlp_features.data(), w.draft.intermediate,
                w.block.down_out.data(), columns.size());
            w.block.down_done.arrive();
            stop(w, columns);
        }
    };

  private:
    static Share pairs_of(Share features) { return {2 * features.begin, 2 * features.end}; }

    // Features go out as they are done: the send job lies within the compute job.
    template <class W>
    static void gate_up(W& w) {
        const Share features = w.share(w.draft.intermediate);
        if (features.size() == 0) return;
        const std::uint32_t hidden = w.shape.hidden;
        wait_first_stage<MuseLayer::gate_up_wait_weights>(w);
        w.template job<MuseLayer::gate_up_compute>([&] {
            bool sending = false;
            take_rows(w, MuseLayer::gate_up_compute, w.draft_weights().gate_up, pairs_of(features), 2,
                      [&](std::uint32_t row, const float* values) {
                          if (!std::exchange(sending, true)) MUSETRACE_BEGIN(w.stamps, MuseLayer::gate_up_send);
                          for (std::uint32_t token = 0; token < kTokens; ++token) {
                              const float* x = &w.block.x[std::size_t{token} * hidden];
                              const float gate = dot(values, x, hidden), up = dot(values + hidden, x, hidden);
                              const std::size_t at = std::size_t{token} * w.draft.intermediate + row / 2;
                              GatherBf16::send(&w.exchange().mlp_features[at],
                                               float_to_bf16(gate * sigmoid(gate) * up));
                          }
                      });
            if (sending) MUSETRACE_END(w.stamps, MuseLayer::gate_up_send);
        });
    }

    template <class W>
    static void stop(W& w, Share columns) {
        w.template job<MuseLayer::down_stop_wait_ranks>(
            [&] { kStop5.wait_ranks(w, MuseLayer::down_stop_wait_ranks, columns); });
        w.template job<MuseLayer::down_stop_sum>([&] { kStop5.sum(w, columns); });
        w.template job<MuseLayer::down_stop_wait_rows>([&] { kStop5.wait_rows(w, MuseLayer::down_stop_wait_rows); });
        w.template job<MuseLayer::down_stop_norm>([&] {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                finish_token(w, token);
            }
        });
        w.group_sync(MuseLayer::down_stop_norm);
    }

    // Every block has the whole row; the one whose turn it is keeps the new residual.
    template <class W>
    static void finish_token(W& w, std::uint32_t token) {
        const std::uint32_t hidden = w.shape.hidden;
        std::vector<float> out(hidden);
        kStop5.read_row(w, token, out.data());
        const float* residual = w.block.residual.data() + std::size_t{token} * hidden;
        for (std::uint32_t i = 0; i < hidden; ++i) out[i] += residual[i];
        if (token % w.shape.blocks == w.block_id()) {
            std::copy(out.begin(), out.end(), w.next().residual.begin() + std::size_t{token} * hidden);
        }
        if (w.launch.layer + 1 < w.draft.layers) {
            norm_row(out.data(), w.rank.draft.layers[w.launch.layer + 1].input_norm, hidden, w.draft.rms_eps,
                     w.block.x.data() + std::size_t{token} * hidden);
        }
    }
};

}  // namespace musetrace::cpu::ops
