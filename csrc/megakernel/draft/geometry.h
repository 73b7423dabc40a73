// How the work of a draft's launches is dealt to the blocks of a rank. For the kernel and for the host that starts it.
#pragma once

#include <cstdint>

#include "megakernel/geometry.h"
#include "muse/draft_shape.h"

namespace musetrace::megakernel::draft {

inline constexpr std::uint32_t kHeadDim = 128;
inline constexpr std::uint32_t kTilesOfHead = kHeadDim / kTileRows;
inline constexpr std::uint32_t kMaxLayers = 8;
// Columns of x that shared memory holds at a time: a product of more of them takes them piece by piece.
inline constexpr std::uint32_t kPieceK = 2048;
inline constexpr std::uint32_t kMaxUnits = 8;    // of a block
inline constexpr std::uint32_t kMaxSlices = 8;   // of K
inline constexpr std::uint32_t kMaxSplits = 16;  // of the keys

// What the kernel takes of a draft and its target (muse/draft_shape.h, muse/shape.h); per rank where it says so.
struct DraftSizes {
    std::uint32_t ranks;
    std::uint32_t blocks;  // per rank
    std::uint32_t layers;
    std::uint32_t hidden;
    std::uint32_t q_heads;          // of a rank
    std::uint32_t kv_heads;         // of a rank
    std::uint32_t inner;            // features of the MLP, of a rank
    std::uint32_t feature_layers;   // of the target
    std::uint32_t feature_columns;  // of the context's input, of a rank
    std::uint32_t feature_k;        // the same with zeros behind them, as fc is packed
    std::uint32_t window;
    std::uint32_t capacity;  // KV rows per head
    float rms_eps;
    float embed_eps;  // of the target's norm behind its embedding

    constexpr std::uint32_t head_columns() const { return q_heads * kHeadDim; }
    constexpr std::uint32_t kv_rows() const { return 2 * kv_heads * kHeadDim; }
    constexpr std::uint32_t qkv_rows() const { return head_columns() + kv_rows(); }
    constexpr std::uint32_t context_rows() const { return layers * kv_rows(); }
};

// `head_dim` must be kHeadDim.
constexpr DraftSizes sizes_of(const Shape& target, const DraftShape& d) {
    const std::uint32_t columns = d.feature_width(target.hidden) / target.ranks, stage = stage_k(columns);
    return {target.ranks,   target.blocks,
            d.layers,       target.hidden,
            d.q_heads,      d.kv_heads,
            d.intermediate, d.num_targets,
            columns,        columns < kMaxStageK ? columns : ceil_div(columns, stage) * stage,
            d.window,       target.capacity,
            d.rms_eps,      target.rms_eps};
}

// What the blocks share out, fixed before the launch.
struct DraftPlan {
    std::uint32_t dense_blocks;  // that do dense products; the others only attention and norms of heads
    std::uint32_t slices;        // of K, where K is the hidden size
    std::uint32_t splits;        // of the keys, for each query head
};

constexpr DraftPlan make_plan(const DraftSizes& s) {
    const std::uint32_t units = s.hidden / kUnitRows;
    const std::uint32_t dense = power_of_two_within(s.blocks < units ? s.blocks : units);
    const std::uint32_t per_head = s.blocks / s.q_heads;
    // The keys of 16 splits are no more than a run for each warp: a second one would take as long as the first.
    return {dense, slices_of(s.hidden, kMaxSlices, dense),
            per_head >= kMaxSplits ? kMaxSplits
            : per_head >= 1        ? per_head
                                   : 1};
}

// All that a block needs of it.
struct DraftShares {
    Share units;  // of the residual stream
    DenseShare gate_up;
    DenseShare qkv;
    DenseShare context;  // tiles of k and v of all layers, one layer's behind the other's
};
constexpr DraftShares draft_shares(const DraftSizes& s, const DraftPlan& plan, std::uint32_t block) {
    if (block >= plan.dense_blocks) return {{0, 0}, {0, {0, 0}}, {0, {0, 0}}, {0, {0, 0}}};
    const auto share = [&](std::uint32_t rows) {
        return dense_share(rows / kTileRows, plan.slices, block, plan.dense_blocks);
    };
    return {block_share(s.hidden / kUnitRows, block, plan.dense_blocks), share(2 * s.inner), share(s.qkv_rows()),
            share(s.context_rows())};
}

// Sizes that the kernel can run; what is wrong, or null.
constexpr const char* unsupported(const DraftSizes& s) {
    const DraftPlan plan = make_plan(s);
    if (s.hidden % kMaxStageK != 0) return "hidden must be a multiple of 512";
    if (s.layers == 0 || s.layers > kMaxLayers) return "a draft has 1 to 8 layers";
    if (s.feature_layers == 0 || s.feature_layers > kMaxLayers) return "a draft takes 1 to 8 layers of its target";
    if (s.inner % kChunkK != 0 || s.inner % stage_k(s.inner) != 0 || stage_k(s.inner) % kChunkK != 0) {
        return "a rank's features of the MLP must be a multiple of 32, and of 512 beyond that: use another TP";
    }
    if (s.head_columns() % stage_k(s.head_columns()) != 0)
        return "a rank's query heads must be 1 to 4 or a multiple of 4";
    if (s.feature_columns % kChunkK != 0 || s.feature_k % stage_k(s.feature_k) != 0) {
        return "a rank's columns of the context must be a multiple of 32: use another TP";
    }
    if (s.capacity % 32 != 0) return "the draft's cache must have a multiple of 32 rows";
    if (s.hidden / plan.slices > kPieceK) return "too few blocks for this width";
    if (ceil_div(s.hidden / kUnitRows, plan.dense_blocks) > kMaxUnits) return "too few blocks for this width";
    return nullptr;
}

}  // namespace musetrace::megakernel::draft
