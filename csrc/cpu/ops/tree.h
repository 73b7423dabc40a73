// From the draft's logits to the tree of guesses. Every block looks at its share of the vocabulary, sends the best of
// each row to all blocks of all ranks, and builds the same tree from what comes in
// (musetrace/muse/speculative/tree.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/warp.h"

namespace musetrace::cpu::ops {

// Higher scores first, of equal ones the lower token.
inline bool before(const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.token < b.token;
}

// The most probable prefixes: `rows[depth - 1]` has the candidates of a depth, best first, with log-probabilities.
inline void best_first(const std::vector<std::vector<Candidate>>& rows, StepState& state) {
    struct Open {
        float joint;
        std::uint32_t parent, place;
    };
    float joint[kTokens] = {};
    std::uint32_t depth[kTokens] = {};
    std::vector<Open> open{{rows[0][0].score, 0, 0}};  // in the order in which they were opened
    const auto offer = [&](std::uint32_t parent, std::uint32_t place) {
        if (depth[parent] >= rows.size() || place >= rows[depth[parent]].size()) return;
        open.push_back({joint[parent] + rows[depth[parent]][place].score, parent, place});
    };
    for (std::uint32_t node = 1; node < kTokens; ++node) {
        const auto best =
            std::max_element(open.begin(), open.end(), [](const Open& a, const Open& b) { return a.joint < b.joint; });
        const Open taken = *best;
        open.erase(best);
        state.tokens[node] = rows[depth[taken.parent]][taken.place].token;
        state.parents[node] = taken.parent;
        joint[node] = taken.joint;
        depth[node] = depth[taken.parent] + 1;
        offer(node, 0);
        offer(taken.parent, taken.place + 1);
    }
}

struct Tree {
    template <class W>
    static void group(W& w) {
        std::uint32_t words[kTokensPerWarp][kCandidateWords];
        w.template job<MuseLayer::tree_topk>([&] {
            for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) pick(w, w.first_token() + i, words[i]);
        });
        w.template job<MuseLayer::tree_send>([&] {
            for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) {
                for (std::uint32_t peer = 0; peer < w.shape.ranks; ++peer) {
                    std::uint32_t* slots = &w.exchange_of(peer).candidates[at(w, w.rank_id(), w.block_id(), i)];
                    for (std::uint32_t word = 0; word < kCandidateWords; ++word) {
                        GatherF32::send(slots + word, words[i][word]);
                    }
                }
            }
        });
        w.template job<MuseLayer::tree_wait_ranks>([&] {
            for_senders(w, [&](std::uint32_t rank, std::uint32_t block) {
                GatherF32::wait_full(w.waiter, MuseLayer::tree_wait_ranks,
                                     &w.exchange().candidates[at(w, rank, block, 0)], kTokensPerWarp * kCandidateWords);
            });
        });
        w.template job<MuseLayer::tree_merge>([&] {
            for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) w.block.candidates[w.first_token() + i] = merged(w, i);
        });
        w.group_sync(MuseLayer::tree_merge);
        w.template job<MuseLayer::tree_build>([&] {
            if (w.block_id() != 0 || w.group_warp() != 0) return;
            w.rank.next_state = w.rank.state;
            best_first({w.block.candidates.begin() + 1, w.block.candidates.end()}, w.rank.next_state);
        });
    }

  private:
    // Slots of the warp's token `i` from a block.
    template <class W>
    static std::size_t at(const W& w, std::uint32_t rank, std::uint32_t block, std::uint32_t i) {
        const std::size_t sender = std::size_t{rank} * w.shape.blocks + block;
        return (sender * kTokens + w.first_token() + i) * kCandidateWords;
    }

    template <class W, class Body>
    static void for_senders(const W& w, Body body) {
        for (std::uint32_t rank = 0; rank < w.shape.ranks; ++rank) {
            for (std::uint32_t block = 0; block < w.shape.blocks; ++block) body(rank, block);
        }
    }

    // The best of the block's share of a row, and what the row's normaliser needs of it.
    template <class W>
    static void pick(const W& w, std::uint32_t token, std::uint32_t* words) {
        const Share share = w.share(w.shape.vocab);
        const float* logits = w.rank.logits.data() + std::size_t{token} * w.shape.vocab;
        std::vector<Candidate> all;
        for (std::uint32_t i = share.begin; i < share.end; ++i) {
            all.push_back({logits[i], w.rank_id() * w.shape.vocab + i});
        }
        const std::size_t most = std::min<std::size_t>(kMaxTopK, all.size());
        std::partial_sort(all.begin(), all.begin() + most, all.end(), before);
        double sum = 0;
        for (const Candidate& one : all) sum += std::exp(double{one.score} - double{all[0].score});
        for (std::uint32_t place = 0; place < kMaxTopK; ++place) {
            const bool there = place < most;
            words[place] = float_to_bits(there ? all[place].score : -std::numeric_limits<float>::infinity());
            words[kMaxTopK + place] = there ? all[place].token : 0;
        }
        words[2 * kMaxTopK] = words[0];
        words[2 * kMaxTopK + 1] = float_to_bits(static_cast<float>(sum));
    }

    // The best of the warp's token `i` over all blocks, as log-probabilities.
    template <class W>
    static std::vector<Candidate> merged(const W& w, std::uint32_t i) {
        std::vector<Candidate> all;
        std::vector<double> tops, sums;
        for_senders(w, [&](std::uint32_t rank, std::uint32_t block) {
            const std::uint32_t* slots = &w.exchange().candidates[at(w, rank, block, i)];
            const auto score = [&](std::uint32_t word) { return bits_to_float(GatherF32::receive(slots + word)); };
            for (std::uint32_t place = 0; place < kMaxTopK; ++place) {
                if (std::isinf(score(place))) continue;
                all.push_back({score(place), GatherF32::receive(slots + kMaxTopK + place)});
            }
            tops.push_back(score(2 * kMaxTopK));
            sums.push_back(score(2 * kMaxTopK + 1));
        });
        const double top = *std::max_element(tops.begin(), tops.end());
        double total = 0;
        for (std::size_t sender = 0; sender < tops.size(); ++sender)
            total += sums[sender] * std::exp(tops[sender] - top);
        std::sort(all.begin(), all.end(), before);
        all.resize(std::min<std::size_t>(w.rank.state.top_k, all.size()));
        for (Candidate& one : all) one.score = static_cast<float>(one.score - (top + std::log(total)));
        return all;
    }
};

}  // namespace musetrace::cpu::ops
