// What the target chose behind each node, the longest path of guesses that it chose too, and that path's rows of the
// KV cache moved together (musetrace/muse/speculative/accept.py, sampling.py).
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/ops/tree.h"

namespace musetrace::cpu::ops {

inline std::uint64_t split_mix(std::uint64_t word) {
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
    word = (word ^ word >> 27) * 0x94D049BB133111EBu;
    return word ^ word >> 31;
}

// A standard Gumbel number that depends on these three alone.
inline double gumbel(std::uint64_t seed, std::uint64_t position, std::uint64_t token) {
    constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;
    const std::uint64_t word = split_mix(split_mix(seed + kStep * (position + 1)) + kStep * (token + 1));
    const double uniform = (static_cast<double>(word >> 11) + 0.5) * 0x1p-53;
    return -std::log(-std::log(uniform));
}

struct Accept {
    template <class W>
    static void group(W& w) {
        Candidate best[kTokensPerWarp];
        w.template job<MuseLayer::accept_argmax>([&] {
            for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) best[i] = choose(w, w.first_token() + i);
        });
        w.template job<MuseLayer::accept_send>([&] {
            for (std::uint32_t peer = 0; peer < w.shape.ranks; ++peer) {
                for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) {
                    std::uint32_t* slots = &w.exchange_of(peer).choices[at(w, w.rank_id(), w.block_id(), i)];
                    GatherF32::send(slots, float_to_bits(best[i].score));
                    GatherF32::send(slots + 1, best[i].token);
                }
            }
        });
        w.template job<MuseLayer::accept_wait_ranks>([&] {
            for_senders(w, [&](std::size_t slots) {
                GatherF32::wait_full(w.waiter, MuseLayer::accept_wait_ranks, &w.exchange().choices[slots],
                                     2 * kTokensPerWarp);
            });
        });
        w.template job<MuseLayer::accept_choose>([&] {
            for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) w.block.chosen[w.first_token() + i] = chosen(w, i);
        });
        w.group_sync(MuseLayer::accept_choose);
        StepState next;
        w.template job<MuseLayer::accept_walk>([&] { next = walk(w); });
        w.template job<MuseLayer::accept_keep_kv>([&] { keep_kv(w, next); });
        if (w.block_id() == 0 && w.group_warp() == 0) w.rank.next_state = next;
    }

  private:
    template <class W>
    static std::size_t at(const W& w, std::uint32_t rank, std::uint32_t block, std::uint32_t i) {
        return ((std::size_t{rank} * w.shape.blocks + block) * kTokens + w.first_token() + i) * 2;
    }

    template <class W, class Body>
    static void for_senders(const W& w, Body body) {
        for (std::uint32_t rank = 0; rank < w.shape.ranks; ++rank) {
            for (std::uint32_t block = 0; block < w.shape.blocks; ++block) body(at(w, rank, block, 0));
        }
    }

    // The best token of the block's share of a row.
    template <class W>
    static Candidate choose(const W& w, std::uint32_t token) {
        const Share share = w.share(w.shape.vocab);
        const StepState& state = w.rank.state;
        const float* logits = w.rank.logits.data() + std::size_t{token} * w.shape.vocab;
        Candidate best{};
        for (std::uint32_t i = share.begin; i < share.end; ++i) {
            Candidate one{logits[i], w.rank_id() * w.shape.vocab + i};
            if (state.temperature != 0) {
                const double noise = gumbel(state.seed, w.launch.rows.position[token] + 1, one.token);
                one.score = static_cast<float>(double{one.score} / state.temperature + noise);
            }
            if (i == share.begin || before(one, best)) best = one;
        }
        return best;
    }

    // The best of the warp's token `i` over all blocks.
    template <class W>
    static std::uint32_t chosen(const W& w, std::uint32_t i) {
        Candidate best{};
        bool first = true;
        for_senders(w, [&](std::size_t slots) {
            const std::uint32_t* word = &w.exchange().choices[slots + 2 * i];
            const Candidate one{bits_to_float(GatherF32::receive(word)), GatherF32::receive(word + 1)};
            if (first || before(one, best)) best = one;
            first = false;
        });
        return best.token;
    }

    // Parents stand before their children, so one look at each node is enough.
    template <class W>
    static StepState walk(const W& w) {
        StepState next = w.rank.state;
        std::uint32_t last = 0;
        next.kept = 0;
        for (std::uint32_t node = 0; node < kTokens; ++node) {
            const StepState& tree = w.rank.state;
            const bool right = tree.parents[node] == last && tree.tokens[node] == w.block.chosen[last];
            if (node != 0 && !right) continue;
            last = node;
            next.path[next.kept] = node;
            next.chosen[next.kept++] = w.block.chosen[node];
        }
        next.position += next.kept;
        next.tokens[0] = next.chosen[next.kept - 1];
        return next;
    }

    // Rows of the path to the places behind the kept rows; heads of layers are dealt to the warps of all blocks.
    template <class W>
    static void keep_kv(W& w, const StepState& next) {
        const std::uint32_t d = w.shape.head_dim, workers = w.shape.blocks * kGroupWarps;
        for (std::uint32_t unit = w.block_id() * kGroupWarps + w.group_warp(); unit < w.shape.layers * w.shape.kv_heads;
             unit += workers) {
            KvLayer& cache = w.rank.kv[unit / w.shape.kv_heads];
            const std::size_t first = std::size_t{unit % w.shape.kv_heads} * w.shape.capacity + w.launch.position;
            for (std::uint32_t i = 0; i < next.kept; ++i) {
                for (std::vector<std::uint16_t>* rows : {&cache.k, &cache.v}) {
                    const auto from = rows->begin() + static_cast<std::ptrdiff_t>((first + next.path[i]) * d);
                    std::copy(from, from + d, rows->begin() + static_cast<std::ptrdiff_t>((first + i) * d));
                }
            }
        }
    }
};

}  // namespace musetrace::cpu::ops
