// Attention of the 16 rows of a draft pass: each sees the window behind it and all rows of the pass, before and behind
// it. Work items and runs of keys are those of megakernel/ops/attention.cuh, with heads of 128 dimensions; but a warp
// asks for all of a run before it computes. Loads that stand between products wait for them, one way to L2 after the
// other.
#pragma once

#include "megakernel/draft/ops/product.cuh"
#include "megakernel/ops/online_softmax.cuh"

namespace musetrace::megakernel::draft::ops {

using megakernel::ops::kKeyRun;
using megakernel::ops::OnlineSoftmax;
using megakernel::ops::prefetch_line;
using megakernel::ops::SplitWeights;

// 16 bytes of global memory. The compiler leaves such loads in their order, the assembler does not: it moves them down
// to where it needs their values, but behind no __syncwarp().
__device__ __forceinline__ uint4 load_now(const void* from) {
    uint4 words;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from));
    return words;
}
// 16 bytes of global memory to shared memory, for the lane itself, behind copies_landed().
__device__ __forceinline__ void copy_later(void* shared, const void* global) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void copies_landed() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// The keys that any row sees.
struct KeyRange {
    std::uint32_t first_run, runs;
    __device__ __forceinline__ KeyRange(const DraftSizes& s, std::uint32_t position) {
        first_run = position + 1 > s.window ? (position + 1 - s.window) / kKeyRun : 0;
        runs = ceil_div(position + kTokens, kKeyRun) - first_run;
    }
};

// A run's keys on their way into shared memory, its values into registers, which have no room for both.
struct RunLoads {
    static constexpr std::uint32_t kKeyLoads = kHeadDim / 32;  // 32 dimensions: 16 bytes of each of four lanes
    static constexpr std::uint32_t kValueLoads = kHeadDim / 8;
    static constexpr std::uint32_t kLoadOfWarp = kLanes * kLoadBytes;
    static constexpr std::uint32_t kBytes = kKeyRun / 8 * kKeyLoads * kLoadOfWarp;  // of the keys of a warp

    char* own;  // each lane reads what it has asked for itself
    uint4 values[kValueLoads];

    // Column g of score tile j is key 8 (g / 2) + 2 j + g % 2, so that a lane's scores are keys 8 t to 8 t + 7.
    template <class W>
    __device__ __forceinline__ RunLoads(const W& w, std::uint32_t kv, std::uint32_t key0)
        : own(w.shared.pool + w.group_warp() * kBytes + w.lane * kLoadBytes) {
        const std::uint32_t g = w.lane / 4, t = w.lane % 4, capacity = w.shape().capacity;
        const std::uint16_t* keys =
            w.rank.cache.k + (std::size_t{kv} * capacity + key0 + g / 2 * 8 + g % 2) * kHeadDim + t * 8;
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
#pragma unroll
            for (std::uint32_t i = 0; i < kKeyLoads; ++i) {
                copy_later(own + (j * kKeyLoads + i) * kLoadOfWarp, keys + 2 * j * kHeadDim + i * 32);
            }
        }
        const std::uint16_t* row = w.rank.cache.v + (std::size_t{kv} * kHeadDim + g) * capacity + key0 + t * 8;
#pragma unroll
        for (std::uint32_t n = 0; n < kValueLoads; ++n) values[n] = load_now(row + n * 8 * std::size_t{capacity});
    }

    // Behind copies_landed().
    __device__ __forceinline__ uint4 keys(std::uint32_t j, std::uint32_t i) const {
        return *reinterpret_cast<const uint4*>(own + (j * kKeyLoads + i) * kLoadOfWarp);
    }
};
static_assert(kGroupWarps * RunLoads::kBytes <= kPoolBytes);

struct Attention {
    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        const std::uint32_t splits = w.plan().splits, items = w.shape().q_heads * splits;
        if (w.block() < items) {
            MUSETRACE_BEGIN(w.stamps, MuseDraft::attention_compute);
#pragma unroll 1
            for (std::uint32_t item = w.block(); item < items; item += w.shape().blocks) {
                if (item != w.block()) w.meet(MuseDraft::attention_compute);  // the pool's parts have been read
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
        const std::uint32_t run = first_run(w, w.block() % splits);
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
    static constexpr std::uint32_t kLoads = RunLoads::kKeyLoads;
    using State = OnlineSoftmax<kHeadDim, kGroupWarps>;

    // Of a warp; the splits have the runs of a warp side by side, so that all blocks have about as many.
    template <class W>
    static __device__ __forceinline__ std::uint32_t first_run(const W& w, std::uint32_t split) {
        return w.group_warp() * w.plan().splits + split;
    }

    // The lane's 16 bytes of a load of the query.
    template <class W>
    static __device__ __forceinline__ uint4* query_place(const W& w, std::uint32_t load) {
        return reinterpret_cast<uint4*>(w.shared.outbox) + load * kLanes + w.lane;
    }

    // All warps have the same query, so each asks for an eighth of it: dimensions 32 i to 32 i + 31 of tokens g, or g
    // + 8.
    template <class W>
    static __device__ __forceinline__ void ask_for_query(const W& w, std::uint32_t head) {
        static_assert(2 * kLoads == kGroupWarps);
        const std::uint32_t load = w.group_warp(), token = w.lane / 4 + load % 2 * 8;
        copy_later(query_place(w, load), w.rank.q + std::size_t{token} * w.shape().head_columns() + head * kHeadDim +
                                             load / 2 * 32 + w.lane % 4 * 8);
    }

    template <class W>
    static __device__ __forceinline__ void attend(W& w, std::uint32_t head, std::uint32_t split) {
        const DraftSizes& s = w.shape();
        ask_for_query(w, head);
        const std::uint32_t position = w.position();
        const KeyRange range(s, position);
        State state;
        const std::uint32_t kv = head / (s.q_heads / s.kv_heads), stride = w.plan().splits * kGroupWarps;
#pragma unroll 1
        for (std::uint32_t turn = 0; turn * stride < range.runs; ++turn) {
            const std::uint32_t run = turn * stride + first_run(w, split);
            if (run < range.runs) {
                take_keys(w, kv, (range.first_run + run) * kKeyRun, position, state);
            } else {
                wait_keys(w);
            }
        }
        state.merge_warps(w, MuseDraft::attention_compute, head, split);
    }

    // All warps meet, for each of them has asked for an eighth of the query.
    template <class W>
    static __device__ __forceinline__ void wait_keys(W& w) {
        copies_landed();
        w.meet(MuseDraft::attention_compute);
    }

    template <class W>
    static __device__ __forceinline__ void take_keys(W& w, std::uint32_t kv, std::uint32_t key0, std::uint32_t position,
                                                     State& state) {
        const RunLoads loads(w, kv, key0);
        __syncwarp();  // no load is moved behind the wait
        wait_keys(w);
        float scores[4][4] = {};
        multiply_keys(w, loads, scores);
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
        multiply_values(loads, scores, state);
    }

    template <class W>
    static __device__ __forceinline__ void multiply_keys(const W& w, const RunLoads& loads, float (&scores)[4][4]) {
#pragma unroll
        for (std::uint32_t i = 0; i < kLoads; ++i) {
            const uint4 low = *query_place(w, 2 * i), high = *query_place(w, 2 * i + 1);
            const AFragment first{{low.x, high.x, low.y, high.y}}, second{{low.z, high.z, low.w, high.w}};
#pragma unroll
            for (std::uint32_t j = 0; j < 4; ++j) {
                const uint4 keys = loads.keys(j, i);
                multiply_add(scores[j], first, keys.x, keys.y);
                multiply_add(scores[j], second, keys.z, keys.w);
            }
        }
    }

    static __device__ __forceinline__ void multiply_values(const RunLoads& loads, const float (&scores)[4][4],
                                                           State& state) {
        const SplitWeights weights[2] = {{scores, 0}, {scores, 1}};
#pragma unroll
        for (std::uint32_t n = 0; n < State::kDims; ++n) {
            const uint4& values = loads.values[n];
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

    // Lane i has maximum and sum of split i.
    template <class W>
    static __device__ __forceinline__ void merge_row(W& w, std::uint32_t row, bool first) {
        static_assert(kMaxSplits <= kLanes);
        const std::uint32_t splits = w.plan().splits;
        const char* from = w.slots(w.params.exchange.attention) + std::size_t{row} * splits * kPartFloats * 4;
        const std::uint32_t own = min(w.lane, splits - 1) * kPartFloats + kHeadDim;
        uint4 words[1 + kMaxSplits];  // that, and the lane's dimensions of each split
        sync::receive_slots<sync::OnesF32>(
            w.waiter, MuseDraft::attention_wait_splits, words, 1 + splits,
            [&](std::uint32_t i) { return from + (i == 0 ? own : (i - 1) * kPartFloats + w.lane * 4) * 4; });
        if (first) {
            MUSETRACE_END(w.stamps, MuseDraft::attention_wait_splits);
            MUSETRACE_BEGIN(w.stamps, MuseDraft::attention_merge);
        }
        const float own_top = __uint_as_float(words[0].x);
        float top = own_top;
#pragma unroll
        for (std::uint32_t step = 1; step < kLanes; step *= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
        const float weight = w.lane < splits ? exp2f(own_top - top) : 0.0f;
        float sum = weight * __uint_as_float(words[0].y);
#pragma unroll
        for (std::uint32_t step = 1; step < kLanes; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
        // Where there are fewer splits, the words are those of the last one again, and weigh nothing.
        float4 value{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (std::uint32_t i = 0; i < kMaxSplits; ++i) {
            const float of_split = __shfl_sync(kAllLanes, weight, i);
            const uint4& part = words[1 + i];
            value.x += of_split * __uint_as_float(part.x);
            value.y += of_split * __uint_as_float(part.y);
            value.z += of_split * __uint_as_float(part.z);
            value.w += of_split * __uint_as_float(part.w);
        }
        const std::uint32_t head = row / kTokens, token = row % kTokens;
        const std::uint32_t chunk = head * (kHeadDim / kChunkK) + w.lane / 8, pair = w.lane % 8 * 2;
        char* to = w.slots(w.params.exchange.heads) + (std::size_t{chunk} * kTokens + token) * kChunkBytes;
        sync::send_slots(to + pair_place(pair) * 4, pack_bf16(__fdividef(value.x, sum), __fdividef(value.y, sum)));
        sync::send_slots(to + pair_place(pair + 1) * 4, pack_bf16(__fdividef(value.z, sum), __fdividef(value.w, sum)));
    }
};

}  // namespace musetrace::megakernel::draft::ops
