// A block's shared memory: the weight ring, the operands of its ops, and the barriers between its warps.
#pragma once

#include <cstdint>
#include <vector>

#include "muse/shape.h"
#include "sync/host_arch.h"
#include "sync/mbarrier.h"
#include "sync/ring.h"

namespace musetrace::cpu {

using sync::MBarrier;
using sync::Progress;
using sync::Ring;

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
    std::vector<std::uint32_t> expert_ids;  // [token][top_k], ascending
    std::vector<float> expert_weights;      // [token][top_k]
    Progress experts_landed;                // experts of the list whose features are all in `features`

    MBarrier group;  // the eight group warps, again and again
    MBarrier kv_full, merged, heads_full, o_proj_done, router_done, routed, unpooler_done;

    Block(const Shape& s, std::uint32_t stages, std::uint32_t stage_bytes)
        : ring(stages, stage_bytes, kGroupWarps),
          k(std::size_t{s.kv_heads} * s.capacity * s.head_dim),
          v(std::size_t{s.kv_heads} * s.capacity * s.head_dim),
          partial(std::size_t{kGroupWarps} * s.q_heads * kTokens * (2 + s.head_dim)),
          heads(std::size_t{kTokens} * s.head_columns()),
          all_heads(std::size_t{kTokens} * s.head_columns()),
          residual(std::size_t{kTokens} * s.hidden),
          x(std::size_t{kTokens} * s.hidden),
          pooled(std::size_t{kTokens} * s.moe_hidden),
          features(std::size_t{s.pairs()} * s.intermediate),
          combined(std::size_t{kTokens} * s.pooled_rows()),
          o_proj_out(std::size_t{kTokens} * s.hidden),
          pooler_out(std::size_t{kTokens} * s.pooled_rows()),
          router_out(std::size_t{kTokens} * s.router_rows()),
          unpooler_out(std::size_t{kTokens} * s.hidden),
          qkv_out(std::size_t{kTokens} * s.qkv_units() * s.head_dim),
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
        experts_landed.init();
    }
};

}  // namespace musetrace::cpu
