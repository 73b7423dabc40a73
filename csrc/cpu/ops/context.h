// The draft's context: the features of the rows that the last pass kept, through fc (K-sharded) and an all-reduce, to
// the keys and values of all draft layers. What is not of a kept row is worked out and dropped.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/ops/all_reduce.h"
#include "cpu/ops/qkv.h"
#include "cpu/ops/rows.h"

namespace musetrace::cpu::ops {

struct Context {
    struct Loader {
        template <class W>
        static void run(W& w) {
            const Share rows = w.share(w.shape.hidden);
            w.template job<MuseLayer::fc_load>([&] { load_rows(w, MuseLayer::fc_load, w.rank.draft.fc, rows); });
            if (nothing_to_write(w)) return;
            w.template job<MuseLayer::context_load>([&] {
                for (std::uint32_t layer = 0; layer < w.draft.layers; ++layer) {
                    projection(w, layer).load(w, MuseLayer::context_load);
                }
            });
        }
    };

    // The rank's columns of the features of the kept rows; a row beyond these repeats the last.
    struct Input {
        template <class W>
        static void run(W& w) {
            w.template job<MuseLayer::fc_load_input>([&] {
                const StepState& state = w.rank.state;
                const std::uint32_t width = w.draft.feature_width(w.shape.hidden), k = w.rank.draft.fc.k;
                for (std::uint32_t token = 0; token < kTokens; ++token) {
                    const std::uint32_t kept = token < state.kept ? token : state.kept == 0 ? 0 : state.kept - 1;
                    const std::size_t row = std::size_t{state.path[kept]} * width + std::size_t{w.rank_id()} * k;
                    for (std::uint32_t i = 0; i < k; ++i) {
                        w.block.fc_in[std::size_t{token} * k + i] = bf16_to_float(w.rank.features[row + i]);
                    }
                }
            });
            w.block.features_full.arrive();
        }
    };

    struct Sender {
        template <class W>
        static void run(W& w) {
            w.template job<MuseLayer::fc_wait_output>(
                [&] { w.block.fc_done.wait_parity(w.waiter, MuseLayer::fc_wait_output, 0); });
            w.template job<MuseLayer::fc_send>([&] { kStop1.send(w, w.share(w.shape.hidden), w.block.fc_out.data()); });
        }
    };

    struct Group {
        template <class W>
        static void run(W& w) {
            const Share columns = w.share(w.shape.hidden);
            w.template job<MuseLayer::fc_wait_input>(
                [&] { w.block.features_full.wait_parity(w.waiter, MuseLayer::fc_wait_input, 0); });
            dense<MuseLayer::fc_wait_weights, MuseLayer::fc_compute>(w, w.rank.draft.fc, columns, w.block.fc_in.data(),
                                                                     w.rank.draft.fc.k, w.block.fc_out.data(),
                                                                     columns.size());
            w.block.fc_done.arrive();
            stop(w, columns);
            if (!nothing_to_write(w)) keys_and_values(w);
            // The rows of the pass itself take the place of the context's in block.x.
            w.group_sync(MuseLayer::context_write);
        }
    };

  private:
    template <class W>
    static Projection projection(const W& w, std::uint32_t layer) {
        Projection projection = draft_projection(w, layer);
        projection.q_out = nullptr;
        projection.num_rows = w.rank.state.kept;
        projection.first_row = w.rank.state.position - w.rank.state.kept;
        projection.positions = w.launch.context_rows.position;
        return projection;
    }

    template <class W>
    static bool nothing_to_write(const W& w) {
        return projection(w, 0).own_units(w).empty();
    }

    template <class W>
    static void stop(W& w, Share columns) {
        const std::uint32_t hidden = w.shape.hidden;
        w.template job<MuseLayer::fc_stop_wait_ranks>(
            [&] { kStop1.wait_ranks(w, MuseLayer::fc_stop_wait_ranks, columns); });
        w.template job<MuseLayer::fc_stop_sum>([&] { kStop1.sum(w, columns); });
        w.template job<MuseLayer::fc_stop_wait_rows>([&] { kStop1.wait_rows(w, MuseLayer::fc_stop_wait_rows); });
        w.template job<MuseLayer::fc_stop_norm>([&] {
            std::vector<float> row(hidden);
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                kStop1.read_row(w, token, row.data());
                norm_row(row.data(), w.rank.draft.context_norm, hidden, w.draft.rms_eps,
                         &w.block.x[std::size_t{token} * hidden]);
            }
        });
        w.group_sync(MuseLayer::fc_stop_norm);
    }

    template <class W>
    static void keys_and_values(W& w) {
        const std::size_t of_layer = std::size_t{kTokens} * 2 * w.draft.kv_heads * w.draft.head_dim;
        wait_first_stage<MuseLayer::context_wait_weights>(w);
        w.template job<MuseLayer::context_compute>([&] {
            for (std::uint32_t layer = 0; layer < w.draft.layers; ++layer) {
                projection(w, layer).multiply(w, MuseLayer::context_compute, &w.block.context_out[layer * of_layer]);
            }
        });
        w.group_sync(MuseLayer::context_compute);
        w.template job<MuseLayer::context_write>([&] {
            for (std::uint32_t layer = 0; layer < w.draft.layers; ++layer) {
                float* out = &w.block.context_out[layer * of_layer];
                projection(w, layer).finish(w, out);
                projection(w, layer).store(w, out);
            }
        });
    }
};

}  // namespace musetrace::cpu::ops
