// The sizes and constants of a draft model (musetrace/muse/draft), for the host device and the GPU. Per rank where it
// says so. Hidden width, vocabulary and cache rows are the target's (shape.h).
#pragma once

#include <cstdint>

namespace musetrace {

inline constexpr std::uint32_t kMaxTargetLayers = 8;

struct DraftShape {
    std::uint32_t layers = 0;    // 0: there is no draft
    std::uint32_t q_heads = 0;   // of a rank
    std::uint32_t kv_heads = 0;  // of a rank
    std::uint32_t head_dim = 0;
    std::uint32_t intermediate = 0;  // of a rank
    std::uint32_t window = 0;
    std::uint32_t mask_token = 0;
    std::uint32_t num_targets = 0;  // target layers whose output is the context
    std::uint32_t targets[kMaxTargetLayers] = {};
    float rms_eps = 0;
    float rope_theta = 0;

    constexpr std::uint32_t head_columns() const { return q_heads * head_dim; }
    constexpr std::uint32_t qkv_units() const { return q_heads + 2 * kv_heads; }  // heads: q, k, v
    constexpr std::uint32_t feature_width(std::uint32_t hidden) const { return num_targets * hidden; }
};

}  // namespace musetrace
