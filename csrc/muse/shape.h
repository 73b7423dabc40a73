// The sizes and constants of one model, for the host device and the GPU. Per rank where it says so.
#pragma once

#include <cstdint>

namespace musetrace {

inline constexpr std::uint32_t kTokens = 16;  // tokens verified in one pass
inline constexpr std::uint32_t kGroupWarps = 8;
inline constexpr std::uint32_t kFirstGroupWarp = 4;
inline constexpr std::uint32_t kTokensPerWarp = kTokens / kGroupWarps;

struct Shape {
    std::uint32_t ranks;
    std::uint32_t blocks;  // per rank
    std::uint32_t layers;
    std::uint32_t hidden;
    std::uint32_t q_heads;   // of a rank
    std::uint32_t kv_heads;  // of a rank
    std::uint32_t head_dim;
    std::uint32_t moe_hidden;
    std::uint32_t intermediate;
    std::uint32_t experts;
    std::uint32_t top_k;
    std::uint32_t vocab;     // of a rank
    std::uint32_t capacity;  // KV rows per head
    std::uint32_t window;
    float rms_eps;
    float post_eps;
    float qk_scale;
    float output_multiplier;
    float softcap;
    float routed_scale;
    float rope_theta;

    constexpr std::uint32_t head_columns() const { return q_heads * head_dim; }
    constexpr std::uint32_t pooled_rows() const { return moe_hidden / ranks; }
    constexpr std::uint32_t router_rows() const { return experts / ranks; }
    constexpr std::uint32_t features() const { return intermediate / ranks; }
    constexpr std::uint32_t pairs() const { return kTokens * top_k; }
    constexpr std::uint32_t qkv_units() const { return 2 * (q_heads + kv_heads); }  // heads: q, k, v, gate
};

// Contiguous share of block `block` in `total` items.
struct Share {
    std::uint32_t begin;
    std::uint32_t end;
    constexpr std::uint32_t size() const { return end - begin; }
};
// 32 bits throughout: on the GPU a 64-bit division is a hundred instructions. No total here is above 2^22.
constexpr Share block_share(std::uint32_t total, std::uint32_t block, std::uint32_t blocks) {
    return {total * block / blocks, total * (block + 1) / blocks};
}

}  // namespace musetrace
