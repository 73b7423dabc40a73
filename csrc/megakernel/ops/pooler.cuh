// Pooler (hidden to moe_hidden) and router, both N-sharded between ranks and cut along K between the blocks of a rank.
// The members of a group add up their slices, each an equal part of the group's results, and send them to all ranks.
#pragma once

#include "megakernel/ops/dense.cuh"

namespace musetrace::megakernel::ops {

struct Pooler {
    template <class W>
    static __device__ __forceinline__ void load_router(W& w, ExpertRing::Producer& ring) {
        const PoolShare& share = w.shared.shares.pool;
        if (share.router.size() == 0) return;
        w.template job<MuseHopper::router_load>([&] {
            const std::uint32_t hidden = w.shape().hidden, k = hidden / w.plan().pool_slices;
#pragma unroll 1
            for (std::uint32_t row = share.router.begin; row < share.router.end; ++row) {
                const float* source = w.rank.layer.router + std::size_t{row} * hidden + std::size_t{share.slice} * k;
                ring.fill(w.waiter, MuseHopper::router_load, reinterpret_cast<const char*>(source), k * 4);
            }
        });
    }

    // Behind the pooler's product, whose x the router reads too.
    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        const PoolShare& share = w.shared.shares.pool;
        if (share.pairs() == 0) {
            w.stamps.flush_page(0);
            return;
        }
        if (share.router.size() != 0) route(w, share, w.shape().hidden / w.plan().pool_slices);
        w.stamps.flush_page(0);
        sum_slices(w, share);
    }

    template <class W>
    static __device__ __forceinline__ void send(W& w) {
        const Shape& s = w.shape();
        const PoolShare& share = w.shared.shares.pool;
        if (share.pairs() == 0) return;
        const Job wait = pick_job<MuseHopper::router_wait_output>(0), send = pick_job<MuseHopper::router_send>(0);
        w.begin_sending(wait);
        wait_outbox_full(w, wait.site, outbox_use(w, kPooler));
        w.next_sending(wait, send);
        const auto* outbox = reinterpret_cast<const uint2*>(w.shared.pool + kOutboxAt);
#pragma unroll 1
        for (std::uint32_t i = w.sending_thread(); i < share.owned.size() * s.ranks; i += kSendingWarps * kLanes) {
            const std::uint32_t index = i / s.ranks, peer = i % s.ranks;
            const Pair pair(share, share.owned.begin + index);
            send_pair(w, pair, outbox[index], w.rank.peers[peer], w.rank.places[peer]);
        }
        w.end_sending(send);
        mark_outbox_empty(w);
    }

  private:
    // Pair `index` of a group's results: of a pooler tile (token, rows 2 i and 2 i + 1), or of a router row (tokens 2 i
    // and 2 i + 1).
    struct Pair {
        bool router;
        std::uint32_t tile_or_row;
        std::uint32_t token;
        std::uint32_t pair;

        __device__ __forceinline__ Pair(const PoolShare& share, std::uint32_t index) {
            constexpr std::uint32_t kOfTile = kTokens * kTileRows / 2;
            const std::uint32_t pooled = share.tiles.size() * kOfTile;
            router = index >= pooled;
            if (router) {
                tile_or_row = share.router.begin + (index - pooled) / (kTokens / 2);
                pair = (index - pooled) % (kTokens / 2);
                token = 2 * pair;
            } else {
                tile_or_row = share.tiles.begin + index / kOfTile;
                token = index % kOfTile / (kTileRows / 2);
                pair = index % (kTileRows / 2);
            }
        }
        template <class W>
        __device__ __forceinline__ char* slice(const W& w, std::uint32_t slice) const {
            const Shape& s = w.shape();
            if (router) {
                const std::size_t row = std::size_t{slice} * s.router_rows() + tile_or_row;
                return w.slots(w.params.exchange.router) + (row * kTokens + token) * 4;
            }
            const std::size_t tile = std::size_t{slice} * (s.pooled_rows() / kTileRows) + tile_or_row;
            return w.slots(w.params.exchange.pool) + ((tile * kTokens + token) * kTileRows + 2 * pair) * 4;
        }
    };

    // fp32: a stage is one row's slice of K. Each warp takes every eighth chunk of K for all 16 tokens, of up to four
    // rows at a time.
    static constexpr std::uint32_t kRowsAtOnce = 4;

    template <class W>
    static __device__ __forceinline__ void route(W& w, const PoolShare& share, std::uint32_t k) {
        w.template job<MuseHopper::router_wait_weights>(
            [&] { w.shared.ring.wait_full(w.waiter, MuseHopper::router_wait_weights, w.cursor); });
        w.template job<MuseHopper::router_compute>([&] {
            float* scratch = w.scratch();  // [warp][row][token]
            const std::uint32_t rows = share.router.size();
#pragma unroll 1
            for (std::uint32_t row = 0; row < rows; row += kRowsAtOnce) {
                route_rows(w, min(kRowsAtOnce, rows - row), k, scratch + (w.group_warp() * rows + row) * kTokens);
            }
            w.meet(MuseHopper::router_compute);
#pragma unroll 1
            for (std::uint32_t i = w.group_thread(); i < rows * kTokens; i += kGroupThreads) {
                float total = 0.0f;
#pragma unroll
                for (std::uint32_t part = 0; part < kGroupWarps; ++part) total += scratch[part * rows * kTokens + i];
                const std::size_t row = std::size_t{share.slice} * w.shape().router_rows() + share.router.begin;
                sync::send_slots(w.slots(w.params.exchange.router) + (row * kTokens + i) * 4, __float_as_uint(total));
            }
        });
    }

    template <class W>
    static __device__ __forceinline__ void route_rows(W& w, std::uint32_t rows, std::uint32_t k, float* out) {
        const std::uint32_t g = w.lane / 4, t = w.lane % 4;
        sync::RingCursor cursor = w.cursor;
        const float* weights[kRowsAtOnce];
#pragma unroll
        for (std::uint32_t row = 0; row < kRowsAtOnce; ++row) {
            if (row >= rows) continue;
            const char* stage = w.shared.ring.wait_full(w.waiter, MuseHopper::router_compute, cursor);
            weights[row] = reinterpret_cast<const float*>(stage);
            cursor.advance(kExpertRingStages);
        }
        float sums[kRowsAtOnce][2] = {};
#pragma unroll 1
        for (std::uint32_t chunk = w.group_warp(); chunk < k / kChunkK; chunk += kGroupWarps) {
            float2 x[2][4];
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                const char* from = w.shared.pool + (chunk * kTokens + g + half * 8) * kChunkBytes + t * kLoadBytes;
                const uint4 words = *reinterpret_cast<const uint4*>(from);
                x[half][0] = unpack_bf16(words.x);
                x[half][1] = unpack_bf16(words.y);
                x[half][2] = unpack_bf16(words.z);
                x[half][3] = unpack_bf16(words.w);
            }
#pragma unroll
            for (std::uint32_t row = 0; row < kRowsAtOnce; ++row) {
                if (row >= rows) continue;
#pragma unroll
                for (std::uint32_t q = 0; q < 4; ++q) {
                    const float2 weight = load_pair(weights[row], chunk * kChunkK + q * 8 + t * 2);
                    sums[row][0] += x[0][q].x * weight.x + x[0][q].y * weight.y;
                    sums[row][1] += x[1][q].x * weight.x + x[1][q].y * weight.y;
                }
            }
        }
#pragma unroll
        for (std::uint32_t row = 0; row < kRowsAtOnce; ++row) {
            if (row >= rows) continue;
            w.shared.ring.mark_empty(w.cursor);
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                float sum = sums[row][half];
                sum += __shfl_xor_sync(kAllLanes, sum, 1);
                sum += __shfl_xor_sync(kAllLanes, sum, 2);
                if (t == 0) out[row * kTokens + g + half * 8] = sum;
            }
        }
    }

    // The block's part of the group's results, slices added in order; into the outbox.
    template <class W>
    static __device__ __forceinline__ void sum_slices(W& w, const PoolShare& share) {
        w.template job<MuseHopper::router_wait_slices>([&] {
            wait_outbox_empty(w, MuseHopper::router_wait_slices, outbox_use(w, kPooler));
            auto* outbox = reinterpret_cast<uint2*>(w.shared.pool + kOutboxAt);
            const std::uint32_t slices = w.plan().pool_slices;
#pragma unroll 1
            for (std::uint32_t first = w.group_warp() * kLanes; first < share.owned.size(); first += kGroupThreads) {
                const bool mine = first + w.lane < share.owned.size();
                const Pair pair(share, share.owned.begin + (mine ? first + w.lane : 0));
                uint2 words[16];
                const char* from = pair.slice(w, 0);
                const std::uint32_t step =
                    (pair.router ? w.shape().router_rows() : w.shape().pooled_rows()) * kTokens * 4;
                sync::receive_slots<sync::OnesF32>(w.waiter, MuseHopper::router_wait_slices, words, mine ? slices : 0,
                                                   [&](std::uint32_t slice) { return from + slice * step; });
                float2 total{0.0f, 0.0f};
#pragma unroll
                for (std::uint32_t slice = 0; slice < 16; ++slice) {
                    if (slice >= slices) continue;
                    total.x += __uint_as_float(words[slice].x);
                    total.y += __uint_as_float(words[slice].y);
                }
                if (!mine) continue;
                outbox[first + w.lane] = pair.router ? uint2{__float_as_uint(total.x), __float_as_uint(total.y)}
                                                     : uint2{pack_bf16(total.x, total.y), 0};
            }
        });
        mark_outbox_full(w);
    }

    template <class W>
    static __device__ __forceinline__ void send_pair(const W& w, const Pair& pair, uint2 words, char* peer,
                                                     std::uint32_t place) {
        const Shape& s = w.shape();
        if (pair.router) {
            const std::uint32_t expert = place * s.router_rows() + pair.tile_or_row;
            char* to = peer + w.params.exchange.logits + (std::size_t{pair.token} * s.experts + expert) * 4;
            sync::send_slots(to, words.x);
            sync::send_slots(to + std::size_t{s.experts} * 4, words.y);
            return;
        }
        const std::uint32_t column = place * s.pooled_rows() + pair.tile_or_row * kTileRows + 2 * pair.pair;
        const std::uint32_t word = column / kChunkK * kChunkWords + pair_place(column % kChunkK / 2);
        sync::send_slots(peer + w.params.exchange.pooled + std::size_t{pair.token} * s.moe_hidden * 2 + word * 4,
                         words.x);
    }
};

}  // namespace musetrace::megakernel::ops
