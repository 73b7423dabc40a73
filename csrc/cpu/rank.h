// One virtual rank's memory: weights, exchange buffers, activations that live from launch to launch, KV cache.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/exchange.h"
#include "cpu/weights.h"

namespace musetrace::cpu {

// What a launch leaves for the next one. Two copies alternate, so that a block that is done may write the next
// launch's input while another still reads this launch's.
struct Activations {
    std::vector<float> residual;         // [token][hidden] fp32, the residual stream
    std::vector<std::uint16_t> q;        // [token][q_heads * head_dim] bf16, normed, scaled, rotated
    std::vector<std::uint16_t> gate;     // [token][q_heads * head_dim] bf16, before the sigmoid
    std::vector<std::uint16_t> draft_q;  // [token][q_heads * head_dim] of the draft

    Activations(const Shape& s, const DraftShape& d)
        : residual(std::size_t{kTokens} * s.hidden),
          q(std::size_t{kTokens} * s.head_columns()),
          gate(std::size_t{kTokens} * s.head_columns()),
          draft_q(std::size_t{kTokens} * d.head_columns()) {}
};

struct KvLayer {
    std::vector<std::uint16_t> k;  // [kv_head][position][head_dim] bf16
    std::vector<std::uint16_t> v;

    KvLayer(std::uint32_t kv_heads, std::uint32_t capacity, std::uint32_t head_dim)
        : k(std::size_t{kv_heads} * capacity * head_dim), v(std::size_t{kv_heads} * capacity * head_dim) {}
};

struct Rank {
    std::vector<LayerWeights> layers;
    HeadWeights head;
    ExchangeCopy exchange[2];
    Activations activations[2];
    std::vector<KvLayer> kv;
    std::vector<float> logits;                                 // [token][vocab of the rank]
    std::vector<std::vector<std::uint32_t>> previous_experts;  // per layer: those of the step before, for the prefetch
    std::vector<std::uint32_t> next_experts;  // of the running launch's layer; becomes previous when it has ended

    DraftWeights draft;
    std::vector<KvLayer> draft_kv;
    std::vector<std::uint16_t> features;  // [token][target layer of the draft][hidden] bf16, of the last verify pass
    StepState state;
    StepState next_state;  // made by the running launch; becomes the state when it has ended

    Rank(const Shape& s, const DraftShape& d)
        : layers(s.layers),
          exchange{ExchangeCopy(s, d), ExchangeCopy(s, d)},
          activations{Activations(s, d), Activations(s, d)},
          kv(s.layers, KvLayer(s.kv_heads, s.capacity, s.head_dim)),
          logits(std::size_t{kTokens} * s.vocab),
          previous_experts(s.layers),
          draft_kv(d.layers, KvLayer(d.kv_heads, s.capacity, d.head_dim)),
          features(std::size_t{kTokens} * d.feature_width(s.hidden)) {
        draft.layers.resize(d.layers);
    }
};

}  // namespace musetrace::cpu
