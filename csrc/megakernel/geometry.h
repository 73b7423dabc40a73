// How a layer's work is dealt to the blocks of a rank, and how activations lie in memory. For the kernel, for the host
// that starts it, and for the simulation of its protocol.
#pragma once

#include <cstdint>

#include "megakernel/fragment.h"
#include "muse/shape.h"

namespace musetrace::megakernel {

// Activations lie in chunks of 32 columns, 64 bytes a token, so that a lane's 16 bytes are the B fragments of two
// matrix instructions. Two orders of chunks:
//   by columns   [columns / 32][16 tokens][64 bytes]   what dense products read: a slice of K is one run
//   by rows      [row][columns / 32][64 bytes]         what experts read: a token's row is one run
inline constexpr std::uint32_t kChunkK = 32;
inline constexpr std::uint32_t kChunkWords = kChunkK / 2;  // of 4 bytes, two columns each
inline constexpr std::uint32_t kChunkBytes = kChunkK * 2;

// Word of a chunk in which columns 2 `pair` and 2 `pair` + 1 stand, and its own inverse. Lane t of a group reads words
// 4 t to 4 t + 3: b0 and b1 of the first matrix instruction, then of the second.
constexpr std::uint32_t pair_place(std::uint32_t pair) { return pair % 4 * 4 + pair / 4; }
static_assert(pair_place(pair_place(7)) == 7);

inline constexpr std::uint32_t kUnitRows = 2 * kTileRows;  // two tiles are the columns of one chunk
inline constexpr std::uint32_t kExpertTileRows = 64;
inline constexpr std::uint32_t kTileColumns = kExpertTileRows;       // of GEMM 2
inline constexpr std::uint32_t kTileFeatures = kExpertTileRows / 2;  // of GEMM 1: gate and up
inline constexpr std::uint32_t kExpertTokens = 8;                    // of one matrix instruction

constexpr std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

// What the blocks share out, fixed before the launch.
struct Plan {
    std::uint32_t dense_blocks;  // that do dense products; the others only experts, norms and attention
    std::uint32_t pool_slices;   // of K, for pooler and router
    std::uint32_t qkv_slices;    // of K
    std::uint32_t head_slices;   // of K, for lm_head
    std::uint32_t splits;        // of the keys, for each query head
    std::uint32_t norm_parts;    // blocks that share a token's row at stop 2
};

// The largest power of two that is at most `most`, at most `blocks`, and divides the stages of K.
constexpr std::uint32_t slices_of(std::uint32_t k, std::uint32_t most, std::uint32_t blocks) {
    std::uint32_t slices = 1;
    while (2 * slices <= most && 2 * slices <= blocks && k / stage_k(k) % (2 * slices) == 0) slices *= 2;
    return slices;
}

constexpr std::uint32_t power_of_two_within(std::uint32_t value) {
    std::uint32_t power = 1;
    while (2 * power <= value) power *= 2;
    return power;
}

constexpr Plan make_plan(const Shape& s) {
    // Each of them owns columns of the residual stream, for the sums at stops 1 and 5 come from all of them.
    const std::uint32_t units = s.hidden / kUnitRows;
    const std::uint32_t dense = power_of_two_within(s.blocks < units ? s.blocks : units);
    const std::uint32_t per_head = s.blocks / s.q_heads;
    return {dense,
            // One stage of K for each block, and fewer bytes of X to read: 16 KB instead of 64.
            slices_of(s.hidden, 16, dense),
            // More slices: less X, but more partial sums (4 bytes a row, token and slice).
            slices_of(s.hidden, 8, dense),
            // X of a slice must fit 64 KB.
            slices_of(s.hidden, 4, s.blocks),
            // A power of two, so that a run of keys finds its warp without a division.
            per_head >= 8   ? 8
            : per_head >= 1 ? power_of_two_within(per_head)
                            : 1,
            s.blocks >= 128  ? 8
            : s.blocks >= 16 ? s.blocks / 16
                             : 1};
}

// A block's part of a matrix whose K is cut into slices: group `block / slices` has some tiles of 16 rows, and its
// members a slice of K each.
struct DenseShare {
    std::uint32_t slice;
    Share tiles;
};
constexpr DenseShare dense_share(std::uint32_t tiles, std::uint32_t slices, std::uint32_t block, std::uint32_t blocks) {
    const std::uint32_t groups = blocks / slices, group = block / slices;
    if (group >= groups) return {0, {0, 0}};
    return {block % slices, block_share(tiles, group, groups)};
}

// Columns of the residual stream that a block owns, in units of 32: those it gets from the all-reduce.
constexpr Share own_units(const Shape& s, const Plan& plan, std::uint32_t block) {
    if (block >= plan.dense_blocks) return {0, 0};
    return block_share(s.hidden / kUnitRows, block, plan.dense_blocks);
}

// Pooler and router, by group and slice.
struct PoolShare {
    std::uint32_t slice;
    Share tiles;   // of the pooler
    Share router;  // rows
    Share owned;   // of the group's sums: pairs() in all
    constexpr std::uint32_t pairs() const { return pairs_of(tiles, router); }
    static constexpr std::uint32_t pairs_of(Share tiles, Share router) {
        return tiles.size() * (kTileRows / 2) * kTokens + router.size() * (kTokens / 2);
    }
};
constexpr PoolShare pool_share(const Shape& s, const Plan& plan, std::uint32_t block) {
    const std::uint32_t slices = plan.pool_slices, groups = plan.dense_blocks / slices;
    if (block >= groups * slices) return {0, {0, 0}, {0, 0}, {0, 0}};
    const std::uint32_t group = block / slices, slice = block % slices;
    const Share tiles = block_share(s.pooled_rows() / kTileRows, group, groups);
    const Share router = block_share(s.router_rows(), group, groups);
    return {slice, tiles, router, block_share(PoolShare::pairs_of(tiles, router), slice, slices)};
}

constexpr DenseShare qkv_share(const Shape& s, const Plan& plan, std::uint32_t block) {
    if (block >= plan.dense_blocks) return {0, {0, 0}};
    return dense_share(s.qkv_units() * s.head_dim / kTileRows, plan.qkv_slices, block, plan.dense_blocks);
}
constexpr DenseShare head_share(const Shape& s, const Plan& plan, std::uint32_t block) {
    return dense_share(ceil_div(s.vocab, kTileRows), plan.head_slices, block, s.blocks);
}

// Experts. A work item is an expert and up to eight of its pairs (an expert with more tokens is two items); a tile is
// 64 of its rows. All tiles of GEMM 1, then all of GEMM 2, are dealt in turn, so that whoever had one tile less of the
// first gets the first of the second.
struct ExpertTiles {
    std::uint32_t gemm1 = 0;  // tiles of an item
    std::uint32_t gemm2 = 0;
    ExpertTiles() = default;
    constexpr explicit ExpertTiles(const Shape& s)
        : gemm1(2 * s.features() / kExpertTileRows), gemm2(s.pooled_rows() / kExpertTileRows) {}
};
// All that a block needs of it.
struct BlockShares {
    Share units;  // of the residual stream
    PoolShare pool;
    DenseShare qkv;
    ExpertTiles expert_tiles;
};
constexpr BlockShares block_shares(const Shape& s, const Plan& plan, std::uint32_t block) {
    return {own_units(s, plan, block), pool_share(s, plan, block), qkv_share(s, plan, block), ExpertTiles(s)};
}

inline constexpr std::uint32_t kMaxPairs = 128;

// Sizes that the kernel can run; what is wrong, or null.
constexpr const char* unsupported(const Shape& s) {
    const Plan plan = make_plan(s);
    if (s.head_dim != 64) return "head_dim must be 64";
    if (s.hidden % 512 != 0) return "hidden must be a multiple of 512";
    if (s.head_columns() > 1024) return "a rank must have at most 16 query heads: use a higher TP";
    if (s.pooled_rows() > 1024 || s.pooled_rows() % kExpertTileRows != 0) {
        return "a rank's pooled rows must be a multiple of 64 and at most 1024: use another TP";
    }
    if (s.features() % kTileFeatures != 0) return "a rank's expert features must be a multiple of 32: use another TP";
    if (s.moe_hidden > 4096 || s.intermediate > 4096 || s.moe_hidden % 128 != 0 || s.intermediate % 128 != 0) {
        return "moe_hidden and the experts' intermediate size must be multiples of 128 and at most 4096";
    }
    const ExpertTiles tiles(s);
    if (tiles.gemm1 == 0 || power_of_two_within(tiles.gemm1) != tiles.gemm1 ||
        power_of_two_within(tiles.gemm2) != tiles.gemm2) {
        return "a rank's expert rows must be a power of two times 64: use another TP";
    }
    if ((s.moe_hidden > 2048 && s.moe_hidden != 4096) || (s.intermediate > 2048 && s.intermediate != 4096)) {
        return "moe_hidden and the experts' intermediate size must be at most 2048, or 4096";
    }
    if (s.top_k != 4 && s.top_k != 8) return "top_k must be 4 or 8";
    if (s.experts > 256 || s.experts % 8 != 0) return "experts must be a multiple of 8 and at most 256";
    if (s.capacity % 32 != 0) return "the KV cache's capacity must be a multiple of 32";
    if (s.hidden / plan.pool_slices > 1024 || s.hidden / plan.qkv_slices > 1024) return "too few blocks for this width";
    if (ceil_div(s.hidden / kUnitRows, plan.dense_blocks) > 8) return "too few blocks for this width";
    const PoolShare first = pool_share(s, plan, 0);
    if (ceil_div(first.pairs(), plan.pool_slices) + 1 > 1024 || first.router.size() > 16) {
        return "too few blocks for this width";
    }
    return nullptr;
}

}  // namespace musetrace::megakernel
