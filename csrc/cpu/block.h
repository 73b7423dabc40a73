// A block's shared memory: the weight ring, the operands of its ops, and the barriers between its warps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "muse/draft_shape.h"
#include "muse/shape.h"
#include "sync/host_arch.h"
#include "sync/mbarrier.h"
#include "sync/ring.h"

namespace musetrace::cpu {

using sync::MBarrier;
using sync::Progress;
using sync::Ring;

struct Candidate {
    float score;
    std::uint32_t token;
};

struct Block {
    Ring ring;

    std::vector<float> k;          // [kv_head][key][head_dim] staged for attention
    std::vector<float> v;          // [kv_head][key][head_dim]
    std::vector<float> partial;    // [warp][q_head][token][2 + head_dim]: max, sum, output of the warp's keys
    std::vector<float> heads;      // [token][q_heads * head_dim], the block's own heads filled in
    std::vector<float> all_heads;  // [token][q_heads * head_dim], every block's
    std::vector<float> residual;   // [token][hidden] after attention
    std::vector<float> x;          // [token][hidden], normed, bf16 values
    std::vector<float> pooled;     // [token][moe_hidden], normed, bf16 values
    std::vector<float> features;   // [pair][intermediate], bf16 values
    std::vector<float> combined;   // [token][moe_hidden / ranks], bf16 values
    // Results of the dense ops, [token][the block's rows]. One buffer each: the sender may still read the last one.
    std::vector<float> o_proj_out, pooler_out, router_out, unpooler_out, qkv_out;
    std::vector<float> fc_in;         // [token][the rank's columns of the features]
    std::vector<float> context_out;   // [layer][token][the block's k and v rows]
    std::vector<float> mlp_features;  // [token][intermediate of the rank], bf16 values
    std::vector<float> fc_out, down_out;
    std::vector<std::vector<Candidate>> candidates;  // [token] the best tokens of a draft row
    std::vector<std::uint32_t> chosen;               // [token] what the target chose behind it
    std::vector<std::uint32_t> expert_ids;           // [token][top_k], ascending
    std::vector<float> expert_weights;               // [token][top_k]
    Progress experts_landed;                         // experts of the list whose features are all in `features`

    MBarrier group;  // the eight group warps, again and again
    MBarrier kv_full, merged, heads_full, o_proj_done, router_done, routed, unpooler_done, fc_done, features_full,
        down_done;

    Block(const Shape& s, const DraftShape& d, std::uint32_t stages, std::uint32_t stage_bytes)
        : ring(stages, stage_bytes, kGroupWarps),
          k(std::size_t{s.capacity} * std::max(s.kv_heads * s.head_dim, d.kv_heads * d.head_dim)),
          v(k.size()),
          partial(std::size_t{kGroupWarps} * kTokens *
                  std::max(s.q_heads * (2 + s.head_dim), d.q_heads * (2 + d.head_dim))),
          heads(std::size_t{kTokens} * std::max(s.head_columns(), d.head_columns())),
          all_heads(heads.size()),
          residual(std::size_t{kTokens} * s.hidden),
          x(std::size_t{kTokens} * s.hidden),
          pooled(std::size_t{kTokens} * s.moe_hidden),
          features(std::size_t{s.pairs()} * s.intermediate),
          combined(std::size_t{kTokens} * s.pooled_rows()),
          o_proj_out(std::size_t{kTokens} * s.hidden),
          pooler_out(std::size_t{kTokens} * s.pooled_rows()),
          router_out(std::size_t{kTokens} * s.router_rows()),
          unpooler_out(std::size_t{kTokens} * s.hidden),
          qkv_out(std::size_t{kTokens} * std::max(s.qkv_units() * s.head_dim, d.qkv_units() * d.head_dim)),
          fc_in(std::size_t{kTokens} * d.feature_width(s.hidden) / s.ranks),
          context_out(std::size_t{kTokens} * d.layers * 2 * d.kv_heads * d.head_dim),
          mlp_features(std::size_t{kTokens} * d.intermediate),
          fc_out(d.layers == 0 ? 0 : std::size_t{kTokens} * s.hidden),
          down_out(fc_out.size()),
          candidates(kTokens),
          chosen(kTokens),
          expert_ids(std::size_t{kTokens} * s.top_k),
          expert_weights(std::size_t{kTokens} * s.top_k) {}

    // Before each launch, by the thread that starts it.
    void init() {
        ring.init();
        group.init(kGroupWarps);
        kv_full.init(2);
        merged.init(kGroupWarps);
        heads_full.init(1);
        o_proj_done.init(kGroupWarps);
        router_done.init(kGroupWarps);
        routed.init(kGroupWarps);
        unpooler_done.init(kGroupWarps);
        fc_done.init(kGroupWarps);
        features_full.init(1);
        down_done.init(kGroupWarps);
        experts_landed.init();
    }
};

}  // namespace musetrace::cpu
