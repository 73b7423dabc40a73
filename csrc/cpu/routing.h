// The tile list of the experts. Every warp that needs it builds it from the routed tokens by itself: the same input
// gives the same list, and replication costs no hop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "muse/shape.h"

namespace musetrace::cpu {

struct ActiveExpert {
    std::uint32_t id;
    std::vector<std::uint32_t> pairs;  // token * top_k + place in the token's ascending list
};

// Experts with at least one token, by ascending id.
inline std::vector<ActiveExpert> active_experts(const Shape& s, const std::vector<std::uint32_t>& expert_ids) {
    std::vector<std::vector<std::uint32_t>> pairs_of(s.experts);
    for (std::uint32_t pair = 0; pair < s.pairs(); ++pair) pairs_of[expert_ids[pair]].push_back(pair);
    std::vector<ActiveExpert> active;
    for (std::uint32_t id = 0; id < s.experts; ++id) {
        if (!pairs_of[id].empty()) active.push_back({id, std::move(pairs_of[id])});
    }
    return active;
}

// Top-k of one token: largest score + bias first, ties to the lowest id. Weights are the scores (without the bias),
// renormalised and scaled in that order, then listed by ascending id. (transformers MuseSparkTopkRouter.)
inline void route_token(const Shape& s, const float* scores, const float* bias, std::uint32_t* ids, float* weights) {
    std::vector<std::uint32_t> order(s.experts);
    for (std::uint32_t e = 0; e < s.experts; ++e) order[e] = e;
    std::partial_sort(order.begin(), order.begin() + s.top_k, order.end(), [&](std::uint32_t a, std::uint32_t b) {
        const float left = scores[a] + bias[a], right = scores[b] + bias[b];
        return left != right ? left > right : a < b;
    });
    float sum = 0.0f;
    for (std::uint32_t i = 0; i < s.top_k; ++i) sum += scores[order[i]];
    std::sort(order.begin(), order.begin() + s.top_k);
    for (std::uint32_t i = 0; i < s.top_k; ++i) {
        ids[i] = order[i];
        weights[i] = scores[order[i]] / (sum + 1e-15f) * s.routed_scale;
    }
}

}  // namespace musetrace::cpu
