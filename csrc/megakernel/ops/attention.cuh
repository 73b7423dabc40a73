// Attention of 16 new tokens, a tree's or a chain's, over the KV cache. A work item is a query head and a split of its
// keys; the eight warps of a block share the item's keys in runs of 32 and merge, and the splits meet at the warp that
// owns a (head, token).
//
// One warp, 32 keys: the scores are A = 16 tokens x 64, B = 64 x 8 keys, four times; the outputs A = 16 tokens x 16
// keys, B = 16 keys x 8 dimensions. The order of k within a product is free as long as A and B agree, so every lane
// loads 16 bytes at a time: eight dimensions of q and k, eight keys of v (which is why v lies transposed).
#pragma once

#include "megakernel/ops/dense.cuh"
#include "megakernel/ops/online_softmax.cuh"

namespace musetrace::megakernel::ops {

inline constexpr std::uint32_t kHeadDim = 64;

struct Attention {
    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        const std::uint32_t splits = w.plan().splits, items = w.shape().q_heads * splits;
        const bool busy = w.block() < items;
        if (busy) {
            MUSETRACE_BEGIN(w.stamps, MuseHopper::attention_compute);
#pragma unroll 1
            for (std::uint32_t item = w.block(); item < items; item += w.shape().blocks) {
                attend(w, item / splits, item % splits);
            }
            MUSETRACE_END(w.stamps, MuseHopper::attention_compute);
        }
        merge_splits(w);
    }

    // Before the launch in front has ended: keys and values of the block's first run of each warp on their way into L2.
    // Those of earlier steps do not change; rows that are being written are merely asked for.
    template <class W>
    static __device__ __forceinline__ void prefetch(const W& w) {
        const Shape& s = w.shape();
        const std::uint32_t splits = w.plan().splits;
        if (w.block() >= s.q_heads * splits) return;
        const std::uint32_t position = w.position(), reach = w.params.global_attention ? position + kTokens : s.window;
        const std::uint32_t first = position + 1 > reach ? (position + 1 - reach) / kKeyRun : 0;
        const std::uint32_t run =
            first_run_of(w.block() % splits * kGroupWarps + w.group_warp(), splits * kGroupWarps, first);
        if (run * kKeyRun >= position) return;
        const std::uint32_t kv = w.block() / splits / (s.q_heads / s.kv_heads);
        const std::uint16_t* keys = w.rank.k + (std::size_t{kv} * s.capacity + run * kKeyRun + w.lane) * kHeadDim;
        const std::uint16_t* values = w.rank.v + (std::size_t{kv} * kHeadDim + w.lane) * s.capacity + run * kKeyRun;
        prefetch_line(keys);
        prefetch_line(values);
        prefetch_line(values + std::size_t{32} * s.capacity);
    }

  private:
    using State = OnlineSoftmax<kHeadDim>;

    // What tokens g and g + 8 see: of the keys right in front of the root and of the rows of the pass, a bit each.
    struct Sight {
        std::uint32_t reached[2];  // the first key within the window
        std::uint32_t near[2];     // 16 keys in front of the root, then the 16 rows
    };

    template <class W>
    static __device__ __forceinline__ Sight sight_of(const W& w, std::uint32_t position, std::uint32_t reach) {
        Sight sight;
#pragma unroll
        for (std::uint32_t row = 0; row < 2; ++row) {
            const std::uint32_t token = w.lane / 4 + row * 8, behind = position + w.depth(token) + 1;
            sight.reached[row] = behind > reach ? behind - reach : 0;
            sight.near[row] = w.sees(token) << kTokens | 0xFFFFu;
        }
        return sight;
    }

    // Of the eight keys from `key` on, a bit for each that the token sees. All keys that lie further in front of the
    // root than the 16 have their bits: the shift stops at 0.
    static __device__ __forceinline__ std::uint32_t seen_keys(const Sight& sight, std::uint32_t row, std::uint32_t key,
                                                              std::uint32_t position) {
        const std::int32_t skipped = static_cast<std::int32_t>(key + kTokens - position);
        const std::int32_t unreached = static_cast<std::int32_t>(sight.reached[row] - key);
        return __funnelshift_rc(sight.near[row], 0, max(skipped, 0)) &
               __funnelshift_lc(0, 0xFFFFFFFFu, max(unreached, 0));
    }

    template <class W>
    static __device__ __forceinline__ void attend(W& w, std::uint32_t head, std::uint32_t split) {
        const Shape& s = w.shape();
        const std::uint32_t position = w.position(), end = position + kTokens;
        const std::uint32_t reach = w.params.global_attention ? end : s.window;
        const std::uint32_t first = position + 1 > reach ? (position + 1 - reach) / kKeyRun : 0;
        const std::uint32_t end_run = ceil_div(end, kKeyRun);
        uint4 query[2][2];
        const std::uint32_t g = w.lane / 4, t = w.lane % 4;
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            const std::uint16_t* row = w.rank.q + std::size_t{g + i % 2 * 8} * s.head_columns() + head * kHeadDim;
            query[i / 2][i % 2] = *reinterpret_cast<const uint4*>(row + i / 2 * 32 + t * 8);
        }
        const Sight sight = sight_of(w, position, reach);
        State state;
        const std::uint32_t kv = head / (s.q_heads / s.kv_heads);
        const std::uint32_t stride = w.plan().splits * kGroupWarps;
#pragma unroll 1
        for (std::uint32_t run = first_run_of(split * kGroupWarps + w.group_warp(), stride, first); run < end_run;
             run += stride) {
            take_keys(w, kv, run * kKeyRun, position, sight, query, state);
        }
        state.merge_warps(w, MuseHopper::attention_compute, head, split);
    }

    template <class W>
    static __device__ __forceinline__ void take_keys(W& w, std::uint32_t kv, std::uint32_t key0, std::uint32_t position,
                                                     const Sight& sight, const uint4 (&query)[2][2], State& state) {
        const Shape& s = w.shape();
        const std::uint32_t g = w.lane / 4, t = w.lane % 4;
        // Column g of score tile j is key 8 (g / 2) + 2 j + g % 2, so that a lane's scores are keys 8 t to 8 t + 7.
        uint4 keys[4][2], values[8];
        const std::uint16_t* key_row = w.rank.k + (std::size_t{kv} * s.capacity + key0) * kHeadDim + t * 8;
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
            const std::uint16_t* row = key_row + (g / 2 * 8 + 2 * j + g % 2) * kHeadDim;
            keys[j][0] = *reinterpret_cast<const uint4*>(row);
            keys[j][1] = *reinterpret_cast<const uint4*>(row + 32);
        }
        const std::uint16_t* value_row = w.rank.v + (std::size_t{kv} * kHeadDim + g) * s.capacity + key0 + t * 8;
#pragma unroll
        for (std::uint32_t n = 0; n < 8; ++n) {
            values[n] = *reinterpret_cast<const uint4*>(value_row + std::size_t{n} * 8 * s.capacity);
        }
        float scores[4][4] = {};
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
#pragma unroll
            for (std::uint32_t h = 0; h < 2; ++h) {
                const uint4 &low = query[h][0], &high = query[h][1];
                multiply_add(scores[j], {{low.x, high.x, low.y, high.y}}, keys[j][h].x, keys[j][h].y);
                multiply_add(scores[j], {{low.z, high.z, low.w, high.w}}, keys[j][h].z, keys[j][h].w);
            }
        }
        // 1 / sqrt(64), and the exponential is taken to the base 2.
        constexpr float kScale = 0.125f * 1.44269504088896f;
#pragma unroll
        for (std::uint32_t row = 0; row < 2; ++row) {
            const std::uint32_t seen = seen_keys(sight, row, key0 + t * 8, position);
            float top = state.top[row];
#pragma unroll
            for (std::uint32_t i = 0; i < 8; ++i) {
                float& score = scores[i / 2][row * 2 + i % 2];
                score = seen >> i & 1u ? score * kScale : -INFINITY;
                top = fmaxf(top, score);
            }
            state.weigh(row, top, scores);
        }
#pragma unroll
        for (std::uint32_t u = 0; u < 2; ++u) {
            const SplitWeights weights(scores, u);
#pragma unroll
            for (std::uint32_t n = 0; n < 8; ++n) {
                const std::uint32_t b0 = u == 0 ? values[n].x : values[n].z, b1 = u == 0 ? values[n].y : values[n].w;
                multiply_add(state.output[n], weights.high, b0, b1);
                multiply_add(state.output[n], weights.low, b0, b1);
            }
        }
    }

    // A warp for each (head, token): lanes 0-15 take the even splits, 16-31 the odd ones, four dimensions each. Then
    // the per-head norm and the gate.
    template <class W>
    static __device__ __forceinline__ void merge_splits(W& w) {
        const std::uint32_t rows = w.shape().q_heads * kTokens, warps = w.shape().blocks * kGroupWarps;
        std::uint32_t row = w.group_warp() * w.shape().blocks + w.block();
        if (row >= rows) return;
        MUSETRACE_BEGIN(w.stamps, MuseHopper::attention_wait_splits);
#pragma unroll 1
        for (bool first = true; row < rows; row += warps, first = false) merge_row(w, row, first);
        MUSETRACE_END(w.stamps, MuseHopper::attention_merge);
    }

    template <class W>
    static __device__ __forceinline__ void merge_row(W& w, std::uint32_t row, bool first) {
        const Shape& s = w.shape();
        const std::uint32_t splits = w.plan().splits, side = w.lane / 16, place = w.lane % 16;
        const char* from = w.slots(w.params.exchange.attention) + std::size_t{row} * splits * kPartFloats * 4;
        uint4 words[8];  // output and the rest of splits side, side + 2, ...
        sync::receive_slots<sync::OnesF32>(
            w.waiter, MuseHopper::attention_wait_splits, words, 2 * sync::count_below(side, splits, 2),
            [&](std::uint32_t i) {
                return from + ((i / 2 * 2 + side) * kPartFloats + (i % 2 == 0 ? place * 4 : kHeadDim)) * 4;
            });
        if (first) {
            MUSETRACE_END(w.stamps, MuseHopper::attention_wait_splits);
            MUSETRACE_BEGIN(w.stamps, MuseHopper::attention_merge);
        }
        float top = -INFINITY;
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            if (i * 2 + side < splits) top = fmaxf(top, __uint_as_float(words[2 * i + 1].x));
        }
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 16));
        float value[4] = {}, sum = 0.0f;
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            if (i * 2 + side >= splits) continue;
            const float weight = exp2f(__uint_as_float(words[2 * i + 1].x) - top);
            sum += weight * __uint_as_float(words[2 * i + 1].y);
            value[0] += weight * __uint_as_float(words[2 * i].x);
            value[1] += weight * __uint_as_float(words[2 * i].y);
            value[2] += weight * __uint_as_float(words[2 * i].z);
            value[3] += weight * __uint_as_float(words[2 * i].w);
        }
        sum += __shfl_xor_sync(kAllLanes, sum, 16);
        float squares = 0.0f;
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            value[i] = __fdividef(value[i] + __shfl_xor_sync(kAllLanes, value[i], 16), sum);
            squares += value[i] * value[i];
        }
#pragma unroll
        for (std::uint32_t step = 1; step < 16; step *= 2) squares += __shfl_xor_sync(kAllLanes, squares, step);
        const float norm = rsqrtf(squares / kHeadDim + s.rms_eps);
        const std::uint32_t head = row / kTokens, token = row % kTokens;
        const std::uint16_t* gate = w.rank.gate + std::size_t{token} * s.head_columns() + head * kHeadDim + place * 4;
        const uint2 gates = *reinterpret_cast<const uint2*>(gate);
        const float2 g0 = unpack_bf16(gates.x), g1 = unpack_bf16(gates.y);
        const std::uint32_t low = pack_bf16(value[0] * norm * sigmoid(g0.x), value[1] * norm * sigmoid(g0.y));
        const std::uint32_t high = pack_bf16(value[2] * norm * sigmoid(g1.x), value[3] * norm * sigmoid(g1.y));
        if (side != 0) return;
        const std::uint32_t chunk = head * 2 + place / 8, pair = place * 2 % kChunkWords;
        char* to = w.slots(w.params.exchange.heads) + (chunk * kTokens + token) * kChunkBytes;
        sync::send_slots(to + pair_place(pair) * 4, low);
        sync::send_slots(to + pair_place(pair + 1) * 4, high);
    }

    static __device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
};

}  // namespace musetrace::megakernel::ops
