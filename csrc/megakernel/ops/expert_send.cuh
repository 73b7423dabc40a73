// What becomes of the experts' sums, by warp 3 while the group is at the next tile: the K groups added up, SwiGLU (GEMM
// 1), and off to the ranks.
#pragma once

#include "megakernel/ops/tiles.cuh"

namespace musetrace::megakernel::ops {

struct ExpertSend {
    template <class W>
    static __device__ __forceinline__ void send(W& w) {
        w.shared.routed.wait_parity(w.waiter, MuseHopper::gemm1_wait_sums, 0);
        w.forget();
        TileWalk<W> walk(w);
        std::uint32_t tile = 0;
#pragma unroll 1
        for (std::uint32_t second = 0; second < 2; ++second) send_gemm(w, walk, tile, second != 0);
    }

    // The rank's own columns of moe_hidden, in loopback those of rank 0.
    template <class W>
    static __device__ __forceinline__ std::uint32_t own_place(const W& w) {
        return w.rank.places[0];
    }

  private:
    template <class W>
    static __device__ __forceinline__ void send_gemm(W& w, TileWalk<W>& walk, std::uint32_t& number, bool second) {
        if (!walk.has(second)) return;
        const std::uint32_t site = second ? MuseHopper::gemm2_wait_sums : MuseHopper::gemm1_wait_sums;
        bool first = true;
        w.begin(pick_job<MuseHopper::gemm1_wait_sums, MuseHopper::gemm2_wait_sums>(second));
#pragma unroll 1
        while (walk.has(second)) {
            w.forget();
            const Tile tile = walk.take(second);
            const std::uint32_t buffer = number % 2;
            w.shared.sums_full[buffer].wait_parity(w.waiter, site, number / 2 % 2);
            if (first) {
                w.next(pick_job<MuseHopper::gemm1_wait_sums, MuseHopper::gemm2_wait_sums>(second),
                       pick_job<MuseHopper::gemm1_send, MuseHopper::gemm2_send>(second));
                first = false;
            }
            const float factor = (second ? w.rank.layer.down_factor : w.rank.layer.gate_up_factor)[tile.item.expert];
            // A lane has two rows for columns 2 t and 2 t + 1; lanes with even g keep the first, those with odd g the
            // second, and so each has pairs of neighbouring rows of one token.
            const std::uint32_t column = w.lane % 4 * 2 + w.lane / 4 % 2;
            const bool real = column < tile.item.count;
            const std::uint32_t pair = w.shared.pairs[tile.item.first + (real ? column : 0)];
            const auto* sums = reinterpret_cast<const float4*>(w.shared.sums[buffer]);
            if (second) {
                send_outputs(w, tile, sums, factor, pair, real, buffer);
            } else {
                send_features(w, tile, sums, factor, pair, real, buffer);
            }
            ++number;
        }
        w.end(pick_job<MuseHopper::gemm1_send, MuseHopper::gemm2_send>(second));
    }

    static __device__ __forceinline__ float4 unit_sum(const float4* sums, std::uint32_t unit, std::uint32_t lane,
                                                      float factor) {
        float4 total{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (std::uint32_t k_group = 0; k_group < kGroupsOfK; ++k_group) {
            const float4 part = sums[(k_group * Nvfp4Unit::kUnits + unit) * kLanes + lane];
            total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
        }
        return {total.x * factor, total.y * factor, total.z * factor, total.w * factor};
    }

    // The pair of rows (g, g ^ 1) that this lane keeps, lower row first, of values for columns 2 t and 2 t + 1.
    static __device__ __forceinline__ float2 exchange_rows(std::uint32_t lane, float first, float second) {
        const bool odd = lane / 4 % 2 != 0;
        const float other = __shfl_xor_sync(kAllLanes, odd ? first : second, 4);
        return odd ? float2{other, second} : float2{first, other};
    }

    static __device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

    template <class W>
    static __device__ __forceinline__ void give_back(W& w, std::uint32_t buffer) {
        w.shared.sums_empty[buffer].arrive_as_warp(w.lane);
    }

    // A tile has 32 features, one chunk of a pair's row. Unit u has features 8 u to 8 u + 7.
    template <class W>
    static __device__ __forceinline__ void send_features(W& w, const Tile& tile, const float4* sums, float factor,
                                                         std::uint32_t pair, bool real, std::uint32_t buffer) {
        const Shape& s = w.shape();
        std::uint32_t words[Nvfp4Unit::kUnits];
#pragma unroll
        for (std::uint32_t unit = 0; unit < Nvfp4Unit::kUnits; ++unit) {
            const float4 v = unit_sum(sums, unit, w.lane, factor);
            const float2 kept = exchange_rows(w.lane, silu(v.x) * v.z, silu(v.y) * v.w);
            words[unit] = pack_bf16(kept.x, kept.y);
        }
        give_back(w, buffer);
        if (!real) return;
        const std::size_t row = w.params.exchange.features + std::size_t{pair} * s.intermediate * 2;
#pragma unroll 1
        for (std::uint32_t peer = 0; peer < s.ranks; ++peer) {
            const std::uint32_t feature = w.rank.places[peer] * s.features() + tile.index * kTileFeatures;
            sync::send_slots(w.rank.peers[peer] + row + feature * 2 + w.lane / 8 * kLoadBytes,
                             uint4{words[0], words[1], words[2], words[3]});
        }
    }

    // A tile has 64 columns, two chunks; unit u has columns 16 u to 16 u + 15.
    template <class W>
    static __device__ __forceinline__ void send_outputs(W& w, const Tile& tile, const float4* sums, float factor,
                                                        std::uint32_t pair, bool real, std::uint32_t buffer) {
        const Shape& s = w.shape();
        std::uint32_t words[2 * Nvfp4Unit::kUnits];
#pragma unroll
        for (std::uint32_t unit = 0; unit < Nvfp4Unit::kUnits; ++unit) {
            const float4 v = unit_sum(sums, unit, w.lane, factor);
            const float2 low = exchange_rows(w.lane, v.x, v.y), high = exchange_rows(w.lane, v.z, v.w);
            words[2 * unit] = pack_bf16(low.x, low.y);
            words[2 * unit + 1] = pack_bf16(high.x, high.y);
        }
        give_back(w, buffer);
        const bool gather = w.params.stop4 == Stop4::kGather;
        const std::uint32_t columns = gather ? s.moe_hidden : s.pooled_rows();
        const std::size_t row = w.params.exchange.outputs + std::size_t{pair} * columns * 2;
        if (!gather) send_squares(w, tile, words, pair, real);
        if (!real) return;
#pragma unroll 1
        for (std::uint32_t peer = 0; peer < (gather ? s.ranks : 1); ++peer) {
            char* to = gather ? w.rank.peers[peer] : w.rank.exchange;
            const std::uint32_t column =
                (gather ? w.rank.places[peer] * s.pooled_rows() : 0) + tile.index * kTileColumns;
#pragma unroll
            for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
                sync::send_slots(
                    to + row + column * 2 + chunk * kChunkBytes + w.lane / 8 * kLoadBytes,
                    uint4{words[4 * chunk], words[4 * chunk + 1], words[4 * chunk + 2], words[4 * chunk + 3]});
            }
        }
    }

    // Sum over the tile's columns of ((1 + w) y)^2, rounded as the norm's input is, to all ranks.
    template <class W>
    static __device__ __forceinline__ void send_squares(W& w, const Tile& tile, const std::uint32_t (&words)[8],
                                                        std::uint32_t pair, bool real) {
        const Shape& s = w.shape();
        const float* weight =
            w.rank.layer.post_expert_norm + own_place(w) * s.pooled_rows() + tile.index * kTileColumns;
        float squares = 0.0f;
#pragma unroll
        for (std::uint32_t i = 0; i < 2 * Nvfp4Unit::kUnits; ++i) {
            const float2 y = unpack_bf16(words[i]), scale = load_pair(weight, i / 2 * 16 + i % 2 * 8 + w.lane / 8 * 2);
            const float a = round_bf16(scale.x * y.x), b = round_bf16(scale.y * y.y);
            squares += a * a + b * b;
        }
        squares += __shfl_xor_sync(kAllLanes, squares, 8);
        squares += __shfl_xor_sync(kAllLanes, squares, 16);
        if (!real || w.lane >= 8) return;
        const std::uint32_t tiles = w.shared.shares.expert_tiles.gemm2;
#pragma unroll 1
        for (std::uint32_t peer = 0; peer < s.ranks; ++peer) {
            const std::size_t at = (std::size_t{w.rank.places[peer]} * s.pairs() + pair) * tiles + tile.index;
            sync::send_slots(w.rank.peers[peer] + w.params.exchange.squares + at * 4, __float_as_uint(squares));
        }
    }
};

}  // namespace musetrace::megakernel::ops
