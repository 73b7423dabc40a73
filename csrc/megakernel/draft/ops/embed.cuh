// The first rows of a pass: the embedding of the root in row 0 and of the mask token in all others, behind the target's
// weightless norm, as the residual stream; and behind the first layer's norm, as the input of its q, k, v.
#pragma once

#include "megakernel/draft/ops/stop.cuh"

namespace musetrace::megakernel::draft::ops {

__device__ __forceinline__ float squares_of_load(const uint4& words) {
    const float2 a = unpack_bf16(words.x), b = unpack_bf16(words.y), c = unpack_bf16(words.z), d = unpack_bf16(words.w);
    const float first = a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
    return first + (c.x * c.x + c.y * c.y + d.x * d.x + d.y * d.y);
}

// Group: the sums of squares of the root's and the mask's embedding, by all blocks alike, in a fixed order.
template <class W>
__device__ __forceinline__ float2 squares_of_embeddings(W& w, const std::uint16_t* root, const std::uint16_t* mask) {
    // Columns of a load, and loads of a row that are asked for at once, of both rows: one way to memory for all of
    // them.
    constexpr std::uint32_t kValues = kLoadBytes / 2, kLoads = 4, kStep = kGroupThreads * kValues;
    const std::uint32_t hidden = w.shape().hidden;
    float own[2] = {0.0f, 0.0f};
#pragma unroll 1
    for (std::uint32_t first = 0; first < hidden; first += kLoads * kStep) {
        const std::uint32_t at = first + w.group_thread() * kValues;
        uint4 words[2][kLoads];
#pragma unroll
        for (std::uint32_t i = 0; i < kLoads; ++i) {
            const std::uint32_t column = min(at + i * kStep, hidden - kValues);
            words[0][i] = *reinterpret_cast<const uint4*>(root + column);
            words[1][i] = *reinterpret_cast<const uint4*>(mask + column);
        }
#pragma unroll
        for (std::uint32_t i = 0; i < kLoads; ++i) {
#pragma unroll
            for (std::uint32_t row = 0; row < 2; ++row) {
                const float squares = squares_of_load(words[row][i]);
                own[row] += at + i * kStep < hidden ? squares : 0.0f;
            }
        }
    }
#pragma unroll
    for (std::uint32_t step = 1; step < kLanes; step *= 2) {
        own[0] += __shfl_xor_sync(kAllLanes, own[0], step);
        own[1] += __shfl_xor_sync(kAllLanes, own[1], step);
    }
    auto* scratch = reinterpret_cast<float2*>(w.scratch());
    if (w.lane == 0) scratch[w.group_warp()] = {own[0], own[1]};
    w.meet(MuseDraft::embed_norm);
    float2 all{0.0f, 0.0f};
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupWarps; ++part) {
        all = {all.x + scratch[part].x, all.y + scratch[part].y};
    }
    return all;
}

template <class W>
__device__ __forceinline__ void embed(W& w) {
    const DraftSizes& s = w.shape();
    const Share units = w.shared.shares.units;
    if (units.size() == 0) return;
    w.template job<MuseDraft::embed_norm>([&] {
        const std::uint16_t* root = w.rank.embedding + std::size_t{w.params.state->tokens[0]} * s.hidden;
        const std::uint16_t* mask = w.rank.embedding + std::size_t{w.params.mask_token} * s.hidden;
        const float2 squares = squares_of_embeddings(w, root, mask);
        const std::uint32_t token = w.group_thread() / kChunkWords;
        const float mean = __fdividef(token == 0 ? squares.x : squares.y, static_cast<float>(s.hidden));
        const float scale = rsqrtf(mean + s.embed_eps);
        const float norm = rsqrtf(mean * scale * scale + s.rms_eps);
        const std::uint16_t* row = token == 0 ? root : mask;
#pragma unroll 1
        for (std::uint32_t i = 0; i < units.size(); ++i) {
            const std::uint32_t unit = units.begin + i, column = first_column(w, unit);
            const float2 e = unpack_bf16(*reinterpret_cast<const std::uint32_t*>(row + column));
            const float2 out{e.x * scale, e.y * scale}, weight = load_pair(w.rank.norm2, column);
            *reinterpret_cast<float2*>(w.rank.residual + std::size_t{token} * s.hidden + column) = out;
            sync::send_slots(w.slots(w.params.exchange.x2) + (std::size_t{unit} * kGroupThreads + w.group_thread()) * 4,
                             pack_bf16(out.x * norm * weight.x, out.y * norm * weight.y));
        }
    });
}

}  // namespace musetrace::megakernel::draft::ops
