// Attention of the 16 rows of a draft pass: each sees the window behind it and all rows of the pass, before and behind
// it. Work items, runs of keys and the merge are those of megakernel/ops/attention.cuh, with heads of 128 dimensions.
#pragma once

#include "megakernel/draft/ops/product.cuh"
#include "megakernel/ops/online_softmax.cuh"

namespace musetrace::megakernel::draft::ops {

using megakernel::ops::kKeyRun;
using megakernel::ops::OnlineSoftmax;
using megakernel::ops::prefetch_line;
using megakernel::ops::SplitWeights;

// The keys that any row sees.
struct KeyRange {
    std::uint32_t first_run, runs;
    __device__ __forceinline__ KeyRange(const DraftSizes& s, std::uint32_t position) {
        first_run = position + 1 > s.window ? (position + 1 - s.window) / kKeyRun : 0;
        runs = ceil_div(position + kTokens, kKeyRun) - first_run;
    }
};

struct Attention {
    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        const std::uint32_t splits = w.plan().splits, items = w.shape().q_heads * splits;
        if (w.block() < items) {
            MUSETRACE_BEGIN(w.stamps, MuseDraft::attention_compute);
#pragma unroll 1
            for (std::uint32_t item = w.block(); item < items; item += w.shape().blocks) {
                attend(w, item / splits, item % splits);
            }
            MUSETRACE_END(w.stamps, MuseDraft::attention_compute);
        }
        merge_splits(w);
    }

    // Before the launch in front has ended: keys and values of the block's first run of each warp on their way into L2.
    // Rows and the position itself may be being written; they are merely asked for.
    template <class W>
    static __device__ __forceinline__ void prefetch(const W& w) {
        const DraftSizes& s = w.shape();
        const std::uint32_t splits = w.plan().splits, position = w.position();
        if (w.block() >= s.q_heads * splits || position + kTokens > s.capacity) return;
        const KeyRange range(s, position);
        const std::uint32_t run = w.block() % splits * kGroupWarps + w.group_warp();
        if (run >= range.runs) return;
        const std::uint32_t kv = w.block() / splits / (s.q_heads / s.kv_heads),
                            key0 = (range.first_run + run) * kKeyRun;
        const std::uint16_t* keys = w.rank.cache.k + (std::size_t{kv} * s.capacity + key0 + w.lane) * kHeadDim;
        prefetch_line(keys);
        prefetch_line(keys + 64);
#pragma unroll
        for (std::uint32_t part = 0; part < kHeadDim / kLanes; ++part) {
            const std::size_t row = std::size_t{kv} * kHeadDim + part * kLanes + w.lane;
            prefetch_line(w.rank.cache.v + row * s.capacity + key0);
        }
    }

  private:
    static constexpr std::uint32_t kLoads = kHeadDim / 32;  // 32 dimensions: 16 bytes of each of four lanes
    using State = OnlineSoftmax<kHeadDim>;

    template <class W>
    static __device__ __forceinline__ void attend(W& w, std::uint32_t head, std::uint32_t split) {
        const DraftSizes& s = w.shape();
        const std::uint32_t position = w.position();
        const KeyRange range(s, position);
        uint4 query[kLoads][2];
        const std::uint32_t g = w.lane / 4, t = w.lane % 4;
#pragma unroll
        for (std::uint32_t i = 0; i < kLoads; ++i) {
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                const std::uint16_t* row = w.rank.q + std::size_t{g + half * 8} * s.head_columns() + head * kHeadDim;
                query[i][half] = *reinterpret_cast<const uint4*>(row + i * 32 + t * 8);
            }
        }
        State state;
        const std::uint32_t kv = head / (s.q_heads / s.kv_heads), stride = w.plan().splits * kGroupWarps;
#pragma unroll 1
        for (std::uint32_t run = split * kGroupWarps + w.group_warp(); run < range.runs; run += stride) {
            take_keys(w, kv, (range.first_run + run) * kKeyRun, position, query, state);
        }
        state.merge_warps(w, MuseDraft::attention_compute, head, split);
    }

    template <class W>
    static __device__ __forceinline__ void take_keys(W& w, std::uint32_t kv, std::uint32_t key0, std::uint32_t position,
                                                     const uint4 (&query)[kLoads][2], State& state) {
        float scores[4][4] = {};
        multiply_keys(w, kv, key0, query, scores);
        const std::uint32_t g = w.lane / 4, t = w.lane % 4;
        // 1 / sqrt(128), and the exponential is taken to the base 2.
        constexpr float kScale = 0.08838834764831845f * 1.44269504088896f;
#pragma unroll
        for (std::uint32_t row = 0; row < 2; ++row) {
            const std::uint32_t of_row = position + g + row * 8;
            float top = state.top[row];
#pragma unroll
            for (std::uint32_t i = 0; i < 8; ++i) {
                float& score = scores[i / 2][row * 2 + i % 2];
                const std::uint32_t key = key0 + t * 8 + i / 2 * 2 + i % 2;
                const bool seen = key < position + kTokens && key + w.shape().window > of_row;
                score = seen ? score * kScale : -INFINITY;
                top = fmaxf(top, score);
            }
            state.weigh(row, top, scores);
        }
        multiply_values(w, kv, key0, scores, state);
    }

    // Column g of score tile j is key 8 (g / 2) + 2 j + g % 2, so that a lane's scores are keys 8 t to 8 t + 7.
    template <class W>
    static __device__ __forceinline__ void multiply_keys(const W& w, std::uint32_t kv, std::uint32_t key0,
                                                         const uint4 (&query)[kLoads][2], float (&scores)[4][4]) {
        const std::uint32_t g = w.lane / 4, t = w.lane % 4;
        const std::uint16_t* first = w.rank.cache.k + (std::size_t{kv} * w.shape().capacity + key0) * kHeadDim + t * 8;
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
            const std::uint16_t* row = first + (g / 2 * 8 + 2 * j + g % 2) * kHeadDim;
#pragma unroll
            for (std::uint32_t i = 0; i < kLoads; ++i) {
                const uint4 keys = *reinterpret_cast<const uint4*>(row + i * 32);
                const uint4 &low = query[i][0], &high = query[i][1];
                multiply_add(scores[j], {{low.x, high.x, low.y, high.y}}, keys.x, keys.y);
                multiply_add(scores[j], {{low.z, high.z, low.w, high.w}}, keys.z, keys.w);
            }
        }
    }

    template <class W>
    static __device__ __forceinline__ void multiply_values(const W& w, std::uint32_t kv, std::uint32_t key0,
                                                           const float (&scores)[4][4], State& state) {
        const std::uint32_t g = w.lane / 4, t = w.lane % 4;
        const SplitWeights weights[2] = {{scores, 0}, {scores, 1}};
        const std::size_t capacity = w.shape().capacity;
        const std::uint16_t* row = w.rank.cache.v + (std::size_t{kv} * kHeadDim + g) * capacity + key0 + t * 8;
#pragma unroll
        for (std::uint32_t n = 0; n < State::kDims; ++n) {
            const uint4 values = *reinterpret_cast<const uint4*>(row + n * 8 * capacity);
#pragma unroll
            for (std::uint32_t u = 0; u < 2; ++u) {
                const std::uint32_t b0 = u == 0 ? values.x : values.z, b1 = u == 0 ? values.y : values.w;
                multiply_add(state.output[n], weights[u].high, b0, b1);
                multiply_add(state.output[n], weights[u].low, b0, b1);
            }
        }
    }

    // A warp for each (head, row), four dimensions a lane.
    template <class W>
    static __device__ __forceinline__ void merge_splits(W& w) {
        const std::uint32_t rows = w.shape().q_heads * kTokens, warps = w.shape().blocks * kGroupWarps;
        std::uint32_t row = w.group_warp() * w.shape().blocks + w.block();
        if (row >= rows) return;
        MUSETRACE_BEGIN(w.stamps, MuseDraft::attention_wait_splits);
#pragma unroll 1
        for (bool first = true; row < rows; row += warps, first = false) merge_row(w, row, first);
        MUSETRACE_END(w.stamps, MuseDraft::attention_merge);
    }

    template <class W>
    static __device__ __forceinline__ void merge_row(W& w, std::uint32_t row, bool first) {
        constexpr std::uint32_t kSplits = 8;
        const std::uint32_t splits = w.plan().splits;
        const char* from = w.slots(w.params.exchange.attention) + std::size_t{row} * splits * kPartFloats * 4;
        uint4 words[2 * kSplits];  // output and the rest of each split
        sync::receive_slots<sync::OnesF32>(
            w.waiter, MuseDraft::attention_wait_splits, words, 2 * splits,
            [&](std::uint32_t i) { return from + (i / 2 * kPartFloats + (i % 2 == 0 ? w.lane * 4 : kHeadDim)) * 4; });
        if (first) {
            MUSETRACE_END(w.stamps, MuseDraft::attention_wait_splits);
            MUSETRACE_BEGIN(w.stamps, MuseDraft::attention_merge);
        }
        float top = -INFINITY;
#pragma unroll
        for (std::uint32_t i = 0; i < kSplits; ++i) {
            if (i < splits) top = fmaxf(top, __uint_as_float(words[2 * i + 1].x));
        }
        float4 value{0.0f, 0.0f, 0.0f, 0.0f};
        float sum = 0.0f;
#pragma unroll
        for (std::uint32_t i = 0; i < kSplits; ++i) {
            if (i >= splits) continue;
            const float weight = exp2f(__uint_as_float(words[2 * i + 1].x) - top);
            sum += weight * __uint_as_float(words[2 * i + 1].y);
            value.x += weight * __uint_as_float(words[2 * i].x);
            value.y += weight * __uint_as_float(words[2 * i].y);
            value.z += weight * __uint_as_float(words[2 * i].z);
            value.w += weight * __uint_as_float(words[2 * i].w);
        }
        const std::uint32_t head = row / kTokens, token = row % kTokens;
        const std::uint32_t chunk = head * (kHeadDim / kChunkK) + w.lane / 8, pair = w.lane % 8 * 2;
        char* to = w.slots(w.params.exchange.heads) + (std::size_t{chunk} * kTokens + token) * kChunkBytes;
        sync::send_slots(to + pair_place(pair) * 4, pack_bf16(__fdividef(value.x, sum), __fdividef(value.y, sum)));
        sync::send_slots(to + pair_place(pair + 1) * 4, pack_bf16(__fdividef(value.z, sum), __fdividef(value.w, sum)));
    }
};

}  // namespace musetrace::megakernel::draft::ops
