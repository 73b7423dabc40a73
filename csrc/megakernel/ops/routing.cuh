// Stop 2: the pooled rows' norm, shared out to the blocks and gathered again row by row where experts need them, and
// the top-k of every token with the list of work that follows from it, made by every block for itself: replication
// costs no hop.
#pragma once

#include "megakernel/ops/dense.cuh"

namespace musetrace::megakernel::ops {

struct Routing {
    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        normalize(w);
        route(w);
        list_work(w);
        w.shared.routed.arrive_as_warp(w.lane);
    }

  private:
    // Item: a token, and the part of its row that the block writes; all parts need the whole row's sum of squares.
    template <class W>
    static __device__ __forceinline__ void normalize(W& w) {
        const std::uint32_t items = kTokens * w.plan().norm_parts;
        if (w.block() >= items) return;
        MUSETRACE_BEGIN(w.stamps, MuseHopper::stop2_wait_ranks);
#pragma unroll 1
        for (std::uint32_t item = w.block(); item < items; item += w.shape().blocks) {
            normalize_row(w, item % kTokens, item / kTokens, item == w.block());
        }
        MUSETRACE_END(w.stamps, MuseHopper::stop2_norm);
    }

    template <class W>
    static __device__ __forceinline__ void normalize_row(W& w, std::uint32_t token, std::uint32_t part, bool first) {
        constexpr std::uint32_t kLoads = 2;  // 4096 columns are 512 loads
        const Shape& s = w.shape();
        const std::uint32_t loads = s.moe_hidden * 2 / kLoadBytes;
        const std::size_t row = std::size_t{token} * s.moe_hidden * 2;
        const char* from = w.slots(w.params.exchange.pooled) + row;
        const auto index = [&](std::uint32_t i) { return w.group_thread() + i * kGroupThreads; };
        uint4 words[kLoads];
        sync::receive_slots<sync::OnesBf16>(w.waiter, MuseHopper::stop2_wait_ranks, words,
                                            sync::count_below(index(0), loads, kGroupThreads),
                                            [&](std::uint32_t i) { return from + index(i) * kLoadBytes; });
        if (first) {
            MUSETRACE_END(w.stamps, MuseHopper::stop2_wait_ranks);
            MUSETRACE_BEGIN(w.stamps, MuseHopper::stop2_norm);
        }
        float squares = 0.0f;
#pragma unroll
        for (std::uint32_t i = 0; i < kLoads; ++i) {
            if (index(i) >= loads) continue;
            const std::uint32_t word[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
            for (const std::uint32_t both : word) {
                const float2 v = unpack_bf16(both);
                squares += v.x * v.x + v.y * v.y;
            }
        }
#pragma unroll
        for (std::uint32_t step = 1; step < kLanes; step *= 2) squares += __shfl_xor_sync(kAllLanes, squares, step);
        float* scratch = w.scratch();
        if (w.lane == 0) scratch[w.group_warp()] = squares;
        w.meet(MuseHopper::stop2_norm);
        squares = 0.0f;
#pragma unroll
        for (std::uint32_t i = 0; i < kGroupWarps; ++i) squares += scratch[i];
        const float norm = rsqrtf(squares / static_cast<float>(s.moe_hidden) + s.rms_eps);
        const Share own = block_share(loads, part, w.plan().norm_parts);
        char* to = w.slots(w.params.exchange.expert_x) + row;
#pragma unroll
        for (std::uint32_t i = 0; i < kLoads; ++i) {
            if (index(i) < own.begin || index(i) >= own.end) continue;
            std::uint32_t word[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
            const float* weight = w.rank.layer.pre_expert_norm + index(i) / 4 * kChunkK + index(i) % 4 * 2;
#pragma unroll
            for (std::uint32_t q = 0; q < 4; ++q) {
                const float2 v = unpack_bf16(word[q]), scale = load_pair(weight, q * 8);
                word[q] = pack_bf16(v.x * norm * scale.x, v.y * norm * scale.y);
            }
            sync::send_slots(to + index(i) * kLoadBytes, uint4{word[0], word[1], word[2], word[3]});
        }
    }

    // Two tokens a warp; a lane has the logits of experts 8 lane to 8 lane + 7. Largest score + bias first, ties to the
    // lowest id; weights are the scores without the bias, renormalised.
    template <class W>
    static __device__ __forceinline__ void route(W& w) {
        const Shape& s = w.shape();
        const bool mine = w.lane * 8 < s.experts;
        const char* logits = w.slots(w.params.exchange.logits);
        static_assert(kTokensPerWarp == 2);
        // Asked for before the wait.
        float4 bias[2] = {};
        if (mine) {
            bias[0] = reinterpret_cast<const float4*>(w.rank.layer.router_bias)[w.lane * 2];
            bias[1] = reinterpret_cast<const float4*>(w.rank.layer.router_bias)[w.lane * 2 + 1];
        }
        uint4 words[2 * kTokensPerWarp];
        w.template job<MuseHopper::stop2_wait_logits>([&] {
            const char* from = logits + (w.group_warp() * kTokensPerWarp * s.experts + w.lane * 8) * 4;
            sync::receive_slots<sync::OnesF32>(
                w.waiter, MuseHopper::stop2_wait_logits, words, mine ? 2 * kTokensPerWarp : 0,
                [&](std::uint32_t i) { return from + (i / 2 * s.experts + i % 2 * 4) * 4; });
        });
        MUSETRACE_BEGIN(w.stamps, MuseHopper::stop2_topk);
        choose(w, words, bias, mine);
    }

    // An order of floats as unsigned numbers; 0 is below all.
    static __device__ __forceinline__ std::uint32_t ordered(float value) {
        const std::uint32_t bits = __float_as_uint(value);
        return bits ^ (bits >> 31 != 0 ? 0xFFFFFFFFu : 0x80000000u);
    }

    // Both tokens of the warp side by side, for each round is a chain of dependent instructions.
    template <class W>
    static __device__ __forceinline__ void choose(W& w, const uint4 (&words)[2 * kTokensPerWarp],
                                                  const float4 (&biases)[2], bool mine) {
        const Shape& s = w.shape();
        const float bias[8] = {biases[0].x, biases[0].y, biases[0].z, biases[0].w,
                               biases[1].x, biases[1].y, biases[1].z, biases[1].w};
        float score[kTokensPerWarp][8];
        std::uint32_t key[kTokensPerWarp][8], chosen[kTokensPerWarp] = {};
#pragma unroll
        for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) {
            const uint4 low = words[2 * i], high = words[2 * i + 1];
            const std::uint32_t logit[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (std::uint32_t e = 0; e < 8; ++e) {
                score[i][e] = __fdividef(1.0f, 1.0f + __expf(-__uint_as_float(logit[e]) * s.output_multiplier));
                key[i][e] = mine ? ordered(score[i][e] + bias[e]) : 0;
            }
        }
#pragma unroll 1
        for (std::uint32_t round = 0; round < s.top_k; ++round) {
#pragma unroll
            for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) {
                std::uint32_t best = key[i][0];
#pragma unroll
                for (std::uint32_t e = 1; e < 8; ++e) best = max(best, key[i][e]);
                const std::uint32_t top = __reduce_max_sync(kAllLanes, best);
                const std::uint32_t lanes = __ballot_sync(kAllLanes, best == top);
                std::uint32_t equal = 0;
#pragma unroll
                for (std::uint32_t e = 0; e < 8; ++e) equal |= (key[i][e] == top ? 1u : 0u) << e;
                equal = w.lane == __ffs(lanes) - 1u ? equal & (~equal + 1) : 0;  // the lowest
                chosen[i] |= equal;
#pragma unroll
                for (std::uint32_t e = 0; e < 8; ++e) key[i][e] = equal >> e & 1u ? 0 : key[i][e];
            }
        }
        // Places by ascending id: a lane's first is behind those of the lanes below. The sums in a fixed order.
        float sum[kTokensPerWarp];
        std::uint32_t place[kTokensPerWarp];
#pragma unroll
        for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) {
            sum[i] = 0.0f;
            place[i] = __popc(chosen[i]);
#pragma unroll
            for (std::uint32_t e = 0; e < 8; ++e) sum[i] += chosen[i] >> e & 1u ? score[i][e] : 0.0f;
        }
#pragma unroll 1
        for (std::uint32_t step = 1; step < kLanes; step *= 2) {
#pragma unroll
            for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) {
                const std::uint32_t lower = __shfl_up_sync(kAllLanes, place[i], step);
                place[i] += w.lane >= step ? lower : 0;
                sum[i] += __shfl_xor_sync(kAllLanes, sum[i], step);
            }
        }
#pragma unroll
        for (std::uint32_t i = 0; i < kTokensPerWarp; ++i) {
            const float scale = __fdividef(s.routed_scale, sum[i] + 1e-15f);
            const std::uint32_t token = w.group_warp() * kTokensPerWarp + i;
            std::uint32_t pair = token * s.top_k + place[i] - __popc(chosen[i]);
#pragma unroll
            for (std::uint32_t e = 0; e < 8; ++e) {
                if ((chosen[i] >> e & 1u) == 0) continue;
                w.shared.ids[pair] = static_cast<std::uint8_t>(w.lane * 8 + e);
                w.shared.weights[pair++] = score[i][e] * scale;
            }
        }
    }

    // A thread for each expert: its pairs behind those of the experts before, in items of up to eight. An expert's
    // tokens are bits of a word, so a pair's place among them is a count of bits.
    template <class W>
    static __device__ __forceinline__ void list_work(W& w) {
        const Shape& s = w.shape();
        const std::uint32_t expert = w.group_thread();
        auto* tokens = reinterpret_cast<std::uint32_t*>(w.scratch());  // [expert]
        tokens[expert] = 0;
        w.meet(MuseHopper::stop2_topk);
        const bool mine = expert < s.pairs();  // here the thread is a pair's
        const std::uint32_t token = expert / s.top_k, id = w.shared.ids[mine ? expert : 0];
        if (mine) atomicOr(tokens + id, 1u << token);
        w.meet(MuseHopper::stop2_topk);
        const std::uint32_t count = __popc(tokens[expert]);
        // Inclusive sums of (items, pairs).
        const std::uint32_t own = ceil_div(count, kExpertTokens) << 16 | count;
        std::uint32_t before = own;
#pragma unroll
        for (std::uint32_t step = 1; step < kLanes; step *= 2) {
            const std::uint32_t lower = __shfl_up_sync(kAllLanes, before, step);
            if (w.lane >= step) before += lower;
        }
        auto* scratch = reinterpret_cast<std::uint32_t*>(w.scratch());  // [warp], then [expert]
        if (w.lane == kLanes - 1) scratch[w.group_warp()] = before;
        w.meet(MuseHopper::stop2_topk);
        before -= own;
#pragma unroll
        for (std::uint32_t i = 0; i < kGroupWarps; ++i) {
            if (i < w.group_warp()) before += scratch[i];
        }
        const std::uint32_t item = before >> 16, first = before & 0xFFFFu;
        scratch[kGroupWarps + expert] = first;
        if (expert == kGroupThreads - 1) w.shared.item_count = item + (own >> 16);
        for (std::uint32_t at = 0; at < count; at += kExpertTokens) {
            w.shared.items[item + at / kExpertTokens] = {static_cast<std::uint16_t>(expert),
                                                         static_cast<std::uint8_t>(first + at),
                                                         static_cast<std::uint8_t>(min(count - at, kExpertTokens))};
        }
        w.meet(MuseHopper::stop2_topk);
        if (mine) {
            const std::uint32_t place = scratch[kGroupWarps + id] + __popc(tokens[id] & ((1u << token) - 1u));
            w.shared.pairs[place] = static_cast<std::uint8_t>(expert);
        }
        MUSETRACE_END(w.stamps, MuseHopper::stop2_topk);
    }
};

}  // namespace musetrace::megakernel::ops
