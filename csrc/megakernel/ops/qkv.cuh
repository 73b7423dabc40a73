// Behind the next layer's qkv and gate projection, which is cut along K between the blocks of a rank: q/k norm, RoPE
// and the KV write, by the warp that owns a (head, token).
#pragma once

#include "megakernel/ops/dense.cuh"

namespace musetrace::megakernel::ops {

struct Qkv {
    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        const std::uint32_t items = w.shape().qkv_units() * kTokens, warps = w.shape().blocks * kGroupWarps;
        std::uint32_t item = w.group_warp() * w.shape().blocks + w.block();
        if (item >= items) return;
        MUSETRACE_BEGIN(w.stamps, MuseHopper::qkv_wait_slices);
#pragma unroll 1
        for (bool first = true; item < items; item += warps, first = false) finish_row(w, item, first);
        MUSETRACE_END(w.stamps, MuseHopper::qkv_rope);
    }

  private:
    // A lane has dimensions `lane` and `lane` + 32, which the rotary embedding turns together.
    template <class W>
    static __device__ __forceinline__ void finish_row(W& w, std::uint32_t item, bool first) {
        const Shape& s = w.shape();
        const std::uint32_t unit = item / kTokens, token = item % kTokens, rows = s.qkv_units() * 64;
        const char* from = w.slots(w.params.exchange.qkv) + (std::size_t{token} * rows + unit * 64 + w.lane) * 4;
        const std::uint32_t turned = w.position() + w.depth(token);
        std::uint32_t words[16];
        sync::receive_slots<sync::OnesF32>(
            w.waiter, MuseHopper::qkv_wait_slices, words, 2 * w.plan().qkv_slices,
            [&](std::uint32_t i) { return from + (i / 2 * kTokens * rows + i % 2 * 32) * 4; });
        if (first) {
            MUSETRACE_END(w.stamps, MuseHopper::qkv_wait_slices);
            MUSETRACE_BEGIN(w.stamps, MuseHopper::qkv_rope);
        }
        float low = 0.0f, high = 0.0f;
#pragma unroll
        for (std::uint32_t slice = 0; slice < 8; ++slice) {
            if (slice >= w.plan().qkv_slices) continue;
            low += __uint_as_float(words[2 * slice]);
            high += __uint_as_float(words[2 * slice + 1]);
        }
        const std::uint32_t q = s.q_heads, kv = s.kv_heads, position = w.position() + token;
        const bool query = unit < q, key = !query && unit < q + kv, value = !query && !key && unit < q + 2 * kv;
        if (query || key) {
            float squares = low * low + high * high;
#pragma unroll
            for (std::uint32_t step = 1; step < kLanes; step *= 2) squares += __shfl_xor_sync(kAllLanes, squares, step);
            const float scale = rsqrtf(squares / 64.0f + s.rms_eps) * (query ? s.qk_scale : 1.0f);
            low *= scale;
            high *= scale;
            if (!w.params.next_global_attention) {
                // By halves: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), as transformers' rotate_half does.
                const float2 turn = load_pair(w.params.rope, (std::size_t{turned} * 32 + w.lane) * 2);
                const float x1 = low, x2 = high;
                low = x1 * turn.x - x2 * turn.y;
                high = x2 * turn.x + x1 * turn.y;
            }
        }
        const std::uint16_t low_bits = __bfloat16_as_ushort(__float2bfloat16_rn(low));
        const std::uint16_t high_bits = __bfloat16_as_ushort(__float2bfloat16_rn(high));
        std::uint16_t* to;
        std::size_t step = 32;
        if (key) {
            to = w.rank.next_k + (std::size_t{unit - q} * s.capacity + position) * 64 + w.lane;
        } else if (value) {
            to = w.rank.next_v + (std::size_t{unit - q - kv} * 64 + w.lane) * s.capacity + position;
            step = std::size_t{32} * s.capacity;
        } else {
            const std::uint32_t head = query ? unit : unit - q - 2 * kv;
            to =
                (query ? w.rank.next_q : w.rank.next_gate) + std::size_t{token} * s.head_columns() + head * 64 + w.lane;
        }
        to[0] = low_bits;
        to[step] = high_bits;
    }
};

}  // namespace musetrace::megakernel::ops
