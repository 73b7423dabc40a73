// Stop 4: post-expert norm of each pair, and the weighted sum of a token's, which is the unpooler's input.
//
// The unpooler's K is cut between the ranks where the expert outputs' columns are, so a rank needs only its own columns
// of the outputs, and of the others no more than the sums of squares that the norm over the whole row takes.
#pragma once

#include "megakernel/ops/expert_send.cuh"

namespace musetrace::megakernel::ops {

struct Unpooler {
    // Item: a token and 64 of the rank's columns. A warp for each of the token's experts.
    template <class W>
    static __device__ __forceinline__ void combine(W& w) {
        const std::uint32_t parts = w.shape().pooled_rows() / kTileColumns, items = kTokens * parts;
        if (w.block() >= items) return;
        MUSETRACE_BEGIN(w.stamps, MuseHopper::stop4_wait_ranks);
#pragma unroll 1
        for (std::uint32_t item = w.block(); item < items; item += w.shape().blocks) {
            combine_part(w, item % kTokens, item / kTokens, item == w.block());
        }
        MUSETRACE_END(w.stamps, MuseHopper::stop4_combine);
    }

  private:
    template <class W>
    static __device__ __forceinline__ void combine_part(W& w, std::uint32_t token, std::uint32_t part, bool first) {
        const Shape& s = w.shape();
        auto* scratch = reinterpret_cast<float2*>(w.scratch());  // [place][pair of columns]
        const bool busy = w.group_warp() < s.top_k;
        const std::uint32_t pair = token * s.top_k + (busy ? w.group_warp() : 0);
        const bool gather = w.params.stop4 == Stop4::kGather;
        std::uint32_t word[1] = {};
        float squares = 0.0f;
        if (busy) {
            const std::uint32_t columns = gather ? s.moe_hidden : s.pooled_rows();
            const std::size_t row = w.params.exchange.outputs + std::size_t{pair} * columns * 2;
            const std::uint32_t own = (gather ? ExpertSend::own_place(w) * s.pooled_rows() : 0) + part * kTileColumns;
            // Lane: a word of one of the part's two chunks.
            const char* at = w.slots(row) + own * 2 + w.lane * 4;
            sync::receive_slots<sync::OnesBf16>(w.waiter, MuseHopper::stop4_wait_ranks, word, 1,
                                                [&](std::uint32_t) { return at; });
            squares = gather ? gathered_squares(w, row) : received_squares(w, pair);
        }
        if (first) {
            MUSETRACE_END(w.stamps, MuseHopper::stop4_wait_ranks);
            MUSETRACE_BEGIN(w.stamps, MuseHopper::stop4_combine);
        }
        if (busy) {
            const std::uint32_t column = w.lane / kChunkWords * kChunkK + 2 * pair_place(w.lane % kChunkWords);
            const float2 scale = load_pair(w.rank.layer.post_expert_norm,
                                           ExpertSend::own_place(w) * s.pooled_rows() + part * kTileColumns + column);
            const float2 y = unpack_bf16(word[0]);
            const float norm = rsqrtf(squares / static_cast<float>(s.moe_hidden) + s.post_eps);
            const float weight = w.shared.weights[pair];
            scratch[w.group_warp() * kLanes + w.lane] = {round_bf16(scale.x * y.x) * norm * weight,
                                                         round_bf16(scale.y * y.y) * norm * weight};
        }
        w.meet(MuseHopper::stop4_combine);
        if (w.group_warp() != 0) return;
        float2 sum{0.0f, 0.0f};
#pragma unroll 1
        for (std::uint32_t place = 0; place < s.top_k; ++place) {
            const float2 value = scratch[place * kLanes + w.lane];
            sum = {sum.x + value.x, sum.y + value.y};
        }
        const std::uint32_t chunk = part * 2 + w.lane / kChunkWords;
        sync::send_slots(
            w.slots(w.params.exchange.combined) + (chunk * kTokens + token) * kChunkBytes + w.lane % kChunkWords * 4,
            pack_bf16(sum.x, sum.y));
    }

    // All ranks' sums of a pair, at most 64 of them, in a fixed order.
    template <class W>
    static __device__ __forceinline__ float received_squares(W& w, std::uint32_t pair) {
        const Shape& s = w.shape();
        const std::uint32_t tiles = w.shared.shares.expert_tiles.gemm2, count = s.ranks * tiles;
        std::uint32_t words[2] = {};
        sync::receive_slots<sync::OnesF32>(w.waiter, MuseHopper::stop4_wait_ranks, words,
                                           sync::count_below(w.lane, count, kLanes), [&](std::uint32_t i) {
                                               const std::uint32_t index = w.lane + i * kLanes;
                                               const std::uint32_t at =
                                                   (index / tiles * s.pairs() + pair) * tiles + index % tiles;
                                               return w.slots(w.params.exchange.squares) + at * 4;
                                           });
        float squares = count > w.lane ? __uint_as_float(words[0]) : 0.0f;
        squares += count > w.lane + kLanes ? __uint_as_float(words[1]) : 0.0f;
#pragma unroll
        for (std::uint32_t step = 1; step < kLanes; step *= 2) squares += __shfl_xor_sync(kAllLanes, squares, step);
        return squares;
    }

    // Of a pair's whole row, once all ranks' columns are here.
    template <class W>
    static __device__ __forceinline__ float gathered_squares(W& w, std::size_t row) {
        constexpr std::uint32_t kLoads = 4;
        const std::uint32_t bytes = w.shape().moe_hidden * 2;
        const float* weight = w.rank.layer.post_expert_norm;
        float squares = 0.0f;
#pragma unroll 1
        for (std::uint32_t at = w.lane * kLoadBytes; at - w.lane * kLoadBytes < bytes;
             at += kLoads * kLanes * kLoadBytes) {
            const auto offset = [&](std::uint32_t i) { return at + i * kLanes * kLoadBytes; };
            uint4 words[kLoads];
            sync::receive_slots<sync::OnesBf16>(w.waiter, MuseHopper::stop4_wait_ranks, words,
                                                sync::count_below(at, bytes, kLanes * kLoadBytes),
                                                [&](std::uint32_t i) { return w.slots(row) + offset(i); });
#pragma unroll
            for (std::uint32_t i = 0; i < kLoads; ++i) {
                if (offset(i) >= bytes) continue;
                const std::uint32_t word[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
                const std::uint32_t chunk = offset(i) / kChunkBytes, t = offset(i) % kChunkBytes / kLoadBytes;
#pragma unroll
                for (std::uint32_t q = 0; q < 4; ++q) {
                    const float2 y = unpack_bf16(word[q]), scale = load_pair(weight, chunk * kChunkK + q * 8 + t * 2);
                    const float a = round_bf16(scale.x * y.x), b = round_bf16(scale.y * y.y);
                    squares += a * a + b * b;
                }
            }
        }
#pragma unroll
        for (std::uint32_t step = 1; step < kLanes; step *= 2) squares += __shfl_xor_sync(kAllLanes, squares, step);
        return squares;
    }
};

}  // namespace musetrace::megakernel::ops
