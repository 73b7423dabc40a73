// The rows of a tree at both ends of a verify pass: their embedding in front of it, and the accepted ones of the KV
// cache behind it.
#pragma once

#include "megakernel/step/block.cuh"

namespace musetrace::megakernel::step {

// A block for each row: the embedding behind the target's weightless norm.
template <class W>
__device__ __forceinline__ void embed_rows(W& w) {
    constexpr std::uint32_t kValues = kLoadBytes / 2;
    const std::uint32_t hidden = w.shape().hidden;
#pragma unroll 1
    for (std::uint32_t row = w.block(); row < kTokens; row += w.shape().blocks) {
        const std::uint16_t* from = w.params.embedding + std::size_t{w.state().tokens[row]} * hidden;
        float squares = 0.0f;
#pragma unroll 4
        for (std::uint32_t at = threadIdx.x * kValues; at < hidden; at += kBlockThreads * kValues) {
            const uint4 words = *reinterpret_cast<const uint4*>(from + at);
            const float2 a = unpack_bf16(words.x), b = unpack_bf16(words.y), c = unpack_bf16(words.z),
                         d = unpack_bf16(words.w);
            squares += a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
            squares += c.x * c.x + c.y * c.y + d.x * d.x + d.y * d.y;
        }
#pragma unroll
        for (std::uint32_t step = 1; step < kLanes; step *= 2) squares += __shfl_xor_sync(kAllLanes, squares, step);
        float* sums = w.shared.sums[row / w.shape().blocks % 2];
        if (w.lane == 0) sums[w.warp] = squares;
        __syncthreads();
        float all = 0.0f;
#pragma unroll
        for (std::uint32_t part = 0; part < kWarps; ++part) all += sums[part];
        const float scale = rsqrtf(__fdividef(all, static_cast<float>(hidden)) + w.shape().rms_eps);
        float* to = w.params.rank[w.rank].residual + std::size_t{row} * hidden;
#pragma unroll 4
        for (std::uint32_t at = 2 * threadIdx.x; at < hidden; at += 2 * kBlockThreads) {
            const float2 pair = unpack_bf16(*reinterpret_cast<const std::uint32_t*>(from + at));
            *reinterpret_cast<float2*>(to + at) = {pair.x * scale, pair.y * scale};
        }
    }
}

inline constexpr std::uint32_t kKvDim = 64;

// One warp: the path's keys of a head, read before one of them is written.
__device__ __forceinline__ void keep_keys(std::uint32_t lane, std::uint16_t* rows, std::uint32_t kept,
                                          const std::uint32_t* path) {
    constexpr std::uint32_t kLoads = kKvDim * 2 / kLoadBytes, kEach = kTokens * kLoads / kLanes;
    uint4 words[kEach];
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
        const std::uint32_t at = i * kLanes + lane, row = at / kLoads;
        if (row < kept) {
            words[i] = *reinterpret_cast<const uint4*>(rows + path[row] * kKvDim + at % kLoads * 8);
        }
    }
    __syncwarp();
#pragma unroll
    for (std::uint32_t i = 0; i < kEach; ++i) {
        const std::uint32_t at = i * kLanes + lane, row = at / kLoads;
        if (row < kept) *reinterpret_cast<uint4*>(rows + row * kKvDim + at % kLoads * 8) = words[i];
    }
}

// One warp: the path's values of a head, which lie by dimension; a lane has dimensions of its own.
__device__ __forceinline__ void keep_values(std::uint32_t lane, std::uint16_t* columns, std::uint32_t capacity,
                                            std::uint32_t kept, const std::uint32_t* path) {
#pragma unroll 1
    for (std::uint32_t dim = lane; dim < kKvDim; dim += kLanes) {
        std::uint16_t* own = columns + std::size_t{dim} * capacity;
        std::uint16_t values[kTokens];
#pragma unroll
        for (std::uint32_t row = 0; row < kTokens; ++row) {
            if (row < kept) values[row] = own[path[row]];
        }
#pragma unroll
        for (std::uint32_t row = 0; row < kTokens; ++row) {
            if (row < kept) own[row] = values[row];
        }
    }
}

// Behind kAccept: row `path[i]` of the pass becomes row i. A warp has the keys or the values of a head.
template <class W>
__device__ __forceinline__ void keep_rows(W& w) {
    w.template job<MuseStep::accept_keep_kv>([&] {
        const Shape& s = w.shape();
        const StepState& state = w.state();
        // Rows of a path ascend: one that ends where a chain would is one.
        const std::uint32_t kept = state.kept, first = state.position - kept;
        if (kept == 0 || state.path[kept - 1] == kept - 1) return;
#pragma unroll 1
        for (std::uint32_t item = w.number(); item < 2 * s.layers * s.kv_heads; item += w.warps()) {
            const std::uint32_t head = item / 2 % s.kv_heads;
            const KvRows& cache = w.params.rank[w.rank].kv[item / 2 / s.kv_heads];
            if (item % 2 == 0) {
                keep_keys(w.lane, cache.k + (std::size_t{head} * s.capacity + first) * kKvDim, kept, state.path);
            } else {
                keep_values(w.lane, cache.v + std::size_t{head} * kKvDim * s.capacity + first, s.capacity, kept,
                            state.path);
            }
        }
    });
}

}  // namespace musetrace::megakernel::step
