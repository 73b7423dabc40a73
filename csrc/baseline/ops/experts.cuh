// The two grouped products of the experts. A block has a run of neighbouring tiles of the work list (64 rows of an
// expert each), so that most of them read the same tokens; one warp brings weights, one the tokens' rows, eight
// multiply, and one adds up the K groups and finishes a tile while the others are at the next.
#pragma once

#include "baseline/launch.cuh"
#include "baseline/ops/expert_tile.cuh"

namespace musetrace::baseline::ops {

// The block's tiles. All warps walk them in the same order.
struct TileRun {
    Share tiles;
    std::uint32_t of_item;

    __device__ __forceinline__ TileRun(const ExpertShared& shared, std::uint32_t of_item)
        : tiles(block_share(shared.item_count * of_item, blockIdx.x, gridDim.x)), of_item(of_item) {}

    // visit(item, first, last tile of the run that is the item's).
    template <class Visit>
    __device__ __forceinline__ void for_items(Visit visit) const {
#pragma unroll 1
        for (std::uint32_t tile = tiles.begin; tile < tiles.end;) {
            const std::uint32_t item = tile / of_item, first = item * of_item;
            const std::uint32_t end = min(first + of_item, tiles.end);
            visit(item, tile - first, end - first);
            tile = end;
        }
    }
};

template <bool kSecond, bool kBf16>
struct Experts {
    static constexpr std::uint32_t kLoadSite = kSecond ? MuseHopper::gemm2_load : MuseHopper::gemm1_load;
    static constexpr std::uint32_t kRowSite = kSecond ? MuseHopper::gemm2_load_rows : MuseHopper::gemm1_load_rows;
    static constexpr std::uint32_t kSite = kSecond ? MuseHopper::gemm2_compute : MuseHopper::gemm1_compute;
    static constexpr std::uint32_t kSumSite = kSecond ? MuseHopper::gemm2_wait_sums : MuseHopper::gemm1_wait_sums;

    const ChainParams& params;
    ExpertShared& shared;
    const sync::Waiter& waiter;
    std::uint32_t lane;

    __device__ __forceinline__ const Shape& shape() const { return params.shape; }
    __device__ __forceinline__ std::uint32_t k() const { return kSecond ? shape().intermediate : shape().moe_hidden; }
    __device__ __forceinline__ TileRun run() const {
        const megakernel::ExpertTiles tiles(shape());
        return {shared, kSecond ? tiles.gemm2 : tiles.gemm1};
    }

    __device__ __forceinline__ void load_weights() const {
        const std::uint32_t stage = megakernel::stage_k(k());
        const std::uint32_t bytes = kBf16 ? Bf16Unit::bytes(stage) : Nvfp4Unit::kUnits * Nvfp4Unit::bytes(stage);
        // A bf16 stage is one unit of 16 rows, so a tile is four times as many.
        const std::uint32_t stages = k() / stage * (kBf16 ? Nvfp4Unit::kUnits : 1);
        const char* experts = kSecond ? params.layer.down : params.layer.gate_up;
        ExpertRing::Producer ring(shared.ring, kInFlightBytes);
        const TileRun tiles = run();
        tiles.for_items([&](std::uint32_t item, std::uint32_t first, std::uint32_t end) {
            const std::size_t tile = std::size_t{shared.items[item].expert} * tiles.of_item + first;
            const char* source = experts + tile * stages * bytes;
#pragma unroll 1
            for (std::uint32_t i = 0; i < (end - first) * stages; ++i, source += bytes) {
                ring.fill(waiter, kLoadSite, source, bytes);
            }
        });
    }

    // One bulk copy for the row of each of an item's pairs, into the next slot.
    __device__ __forceinline__ void load_rows() const {
        const std::uint32_t bytes = k() * 2;
        const char* rows = params.scratch + (kSecond ? params.at.features : params.at.expert_x);
        std::uint32_t row = 0;
        run().for_items([&](std::uint32_t item, std::uint32_t, std::uint32_t) {
            const WorkItem work = shared.items[item];
#pragma unroll 1
            for (std::uint32_t i = 0; i < work.count; ++i, ++row) {
                const std::uint32_t pair = shared.pairs[work.first + i], slot = row % kRowSlots;
                const std::uint32_t from = kSecond ? pair : pair / shape().top_k;
                shared.rows_empty[slot].wait_parity(waiter, kRowSite, (row / kRowSlots % 2) ^ 1u);
                if (lane == 0) {
                    copy_activations(shared.rows_full[slot], shared.rows + slot * kRowBytes,
                                     rows + std::size_t{from} * bytes, bytes);
                }
                __syncwarp();
            }
        });
    }

    // `warp` counts the eight that multiply.
    __device__ __forceinline__ void multiply(std::uint32_t warp) const {
        ExpertWarp w{shared, waiter, warp, lane, kSite};
        std::uint32_t row = 0, number = 0;
        const TileRun tiles = run();
        const std::uint32_t stage = megakernel::stage_k(k()), all = tiles.tiles.size();
        const bool packed = !kBf16 && w.k_group() * kGroupK < stage;
        megakernel::StageReader<ExpertRing> reader(shared.ring, waiter, kSite, stage, warp, lane);
        if (packed && all != 0) reader.start(w.cursor);
        tiles.for_items([&](std::uint32_t item, std::uint32_t first, std::uint32_t end) {
            const std::uint32_t count = shared.items[item].count;
#pragma unroll 1
            for (std::uint32_t i = 0; i < count; ++i) {
                shared.rows_full[(row + i) % kRowSlots].wait_parity(waiter, kSite, (row + i) / kRowSlots % 2);
            }
            // Columns beyond the pairs read any row; nobody takes their sums.
            const char* x = shared.rows + (row + min(lane / 4, count - 1)) % kRowSlots * kRowBytes;
#pragma unroll 1
            for (std::uint32_t tile = first; tile < end; ++tile, ++number) {
                TileSums sums = {};
                if constexpr (kBf16) {
                    multiply_bf16(w, k(), x, sums);
                } else if (packed) {
                    megakernel::multiply_tile(reader, w.cursor, params.scale_factor, w.own_x(x), stage, k() / stage,
                                              number + 1 < all, sums);
                } else {
                    give_back(w, k() / stage);
                }
                leave_sums(w, number, sums);
            }
            __syncwarp();
            if (lane < count) shared.rows_empty[(row + lane) % kRowSlots].arrive();
            row += count;
        });
    }

    __device__ __forceinline__ void finish() const {
        std::uint32_t number = 0;
        run().for_items([&](std::uint32_t item, std::uint32_t first, std::uint32_t end) {
            const WorkItem work = shared.items[item];
            const float factor = (kSecond ? params.layer.down_factor : params.layer.gate_up_factor)[work.expert];
            // A lane has two rows for columns 2 t and 2 t + 1; lanes with even g keep the first, those with odd g the
            // second, and so each has pairs of neighbouring rows of one token.
            const std::uint32_t column = lane % 4 * 2 + lane / 4 % 2;
            const bool real = column < work.count;
            const std::uint32_t pair = shared.pairs[work.first + (real ? column : 0)];
#pragma unroll 1
            for (std::uint32_t tile = first; tile < end; ++tile, ++number) {
                const std::uint32_t buffer = number % 2;
                shared.sums_full[buffer].wait_parity(waiter, kSumSite, number / 2 % 2);
                float4 sums[Nvfp4Unit::kUnits];
#pragma unroll
                for (std::uint32_t unit = 0; unit < Nvfp4Unit::kUnits; ++unit) {
                    sums[unit] = unit_sum(shared, buffer, unit, lane, factor);
                }
                __syncwarp();
                if (lane == 0) shared.sums_empty[buffer].arrive();
                if constexpr (kSecond) {
                    store_outputs(sums, tile, pair, real);
                } else {
                    store_features(sums, tile, pair, real);
                }
            }
        });
    }

  private:
    // A tile has 32 features, one chunk of a pair's row. Unit u has features 8 u to 8 u + 7.
    __device__ __forceinline__ void store_features(const float4 (&sums)[Nvfp4Unit::kUnits], std::uint32_t tile,
                                                   std::uint32_t pair, bool real) const {
        std::uint32_t words[Nvfp4Unit::kUnits];
#pragma unroll
        for (std::uint32_t unit = 0; unit < Nvfp4Unit::kUnits; ++unit) {
            const float4 v = sums[unit];
            const float2 kept = exchange_rows(lane, v.x * sigmoid(v.x) * v.z, v.y * sigmoid(v.y) * v.w);
            words[unit] = pack_bf16(kept.x, kept.y);
        }
        if (!real) return;
        char* row = params.scratch + params.at.own_features + std::size_t{pair} * shape().features() * 2;
        *reinterpret_cast<uint4*>(row + tile * kChunkBytes + lane / 8 * kLoadBytes) = {words[0], words[1], words[2],
                                                                                       words[3]};
    }

    // A tile has 64 columns, two chunks; unit u has columns 16 u to 16 u + 15.
    __device__ __forceinline__ void store_outputs(const float4 (&sums)[Nvfp4Unit::kUnits], std::uint32_t tile,
                                                  std::uint32_t pair, bool real) const {
        std::uint32_t words[2 * Nvfp4Unit::kUnits];
        float squares = 0.0f;
        // The rank's columns are those of rank 0: peers are played by it.
        const float* weight = params.layer.post_expert_norm + tile * megakernel::kTileColumns + lane / 8 * 2;
#pragma unroll
        for (std::uint32_t unit = 0; unit < Nvfp4Unit::kUnits; ++unit) {
            const float4 v = sums[unit];
            const float2 low = exchange_rows(lane, v.x, v.y), high = exchange_rows(lane, v.z, v.w);
            words[2 * unit] = pack_bf16(low.x, low.y);
            words[2 * unit + 1] = pack_bf16(high.x, high.y);
            squares += square_of(words[2 * unit], load_pair(weight, unit * 16));
            squares += square_of(words[2 * unit + 1], load_pair(weight, unit * 16 + 8));
        }
        squares += __shfl_xor_sync(kAllLanes, squares, 8);
        squares += __shfl_xor_sync(kAllLanes, squares, 16);
        if (!real) return;
        char* row = params.scratch + params.at.outputs + std::size_t{pair} * shape().pooled_rows() * 2;
#pragma unroll
        for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
            *reinterpret_cast<uint4*>(row + (tile * 2 + chunk) * kChunkBytes + lane / 8 * kLoadBytes) = {
                words[4 * chunk], words[4 * chunk + 1], words[4 * chunk + 2], words[4 * chunk + 3]};
        }
        if (lane >= 8) return;
        scratch<float>(params, params.at.own_squares)[pair * megakernel::ExpertTiles(shape()).gemm2 + tile] = squares;
    }

    // Of (1 + w) y, rounded as the norm's input is.
    static __device__ __forceinline__ float square_of(std::uint32_t word, float2 weight) {
        const float2 y = unpack_bf16(word);
        const float a = round_bf16(weight.x * y.x), b = round_bf16(weight.y * y.y);
        return a * a + b * b;
    }
};

}  // namespace musetrace::baseline::ops
