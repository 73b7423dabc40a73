// All-reduce over the ranks, norm of the branch, residual gate, and the next norm, in one kernel. A cluster of blocks
// has a token's row, a thread eight of its columns (one 16-byte word of `x`), and the blocks exchange sums once:
//
//   out = alpha r + beta p s            p the branch, s = 1 / sqrt(mean(p^2) + post_eps), r the residual
//   mean(out^2) = mean((alpha r)^2) + 2 s mean(alpha r beta p) + s^2 mean((beta p)^2)
#pragma once

#include <cooperative_groups.h>

#include "baseline/launch.cuh"
#include "sync/gpu_slots.cuh"

namespace musetrace::baseline::ops {

inline constexpr std::uint32_t kStopThreads = 128;
inline constexpr std::uint32_t kStopWarps = kStopThreads / kLanes;
inline constexpr std::uint32_t kThreadColumns = 8;
inline constexpr std::uint32_t kMaxCluster = 8;
static_assert(kStopThreads * kThreadColumns * kMaxCluster == kMaxHidden);

constexpr std::uint32_t stop_cluster(const Shape& s) {
    std::uint32_t blocks = 1;
    while (blocks * kStopThreads * kThreadColumns < s.hidden) blocks *= 2;
    return blocks;
}

// Which of the two stops, or the norm in front of the first layer.
struct StopData {
    const float* scale;  // of the branch before its norm, rounded to bf16; null for none
    const float* alpha;  // null: no branch
    const float* beta;
    const float* residual;
    float* out;  // null with alpha null
    const float* norm;
};

struct StopShared {
    float4 warps[kStopWarps];
    float4 blocks[kMaxCluster];
};

// A thread's columns are four pairs: first, first + 8, + 16, + 24.
struct Columns {
    float2 pair[4];
    __device__ __forceinline__ void load(const float* row, std::uint32_t first) {
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) pair[i] = load_pair(row, first + i * 8);
    }
    __device__ __forceinline__ void fill(float value) {
#pragma unroll
        for (float2& both : pair) both = {value, value};
    }
};

// The rank's part to all ranks' places, which are its own here, and their parts back: what an exchange through peer
// memory stores and loads, less its wait.
__device__ __forceinline__ Columns sum_ranks(const ChainParams& params, std::size_t word) {
    const Shape& s = params.shape;
    const std::size_t part_bytes = std::size_t{kTokens} * s.hidden * 2;
    uint4 own = *reinterpret_cast<const uint4*>(params.scratch + params.at.partial + word * kLoadBytes);
    char* received = params.scratch + params.at.received + word * kLoadBytes;
    if (s.ranks > 1) {
        for (std::uint32_t rank = 0; rank < s.ranks; ++rank) sync::send_slots(received + rank * part_bytes, own);
    }
    uint4 parts[megakernel::kMaxRanks] = {};
#pragma unroll
    for (std::uint32_t rank = 0; rank < megakernel::kMaxRanks; ++rank) {
        if (s.ranks > 1 && rank < s.ranks) sync::load_slots(parts[rank], received + rank * part_bytes);
    }
    if (s.ranks == 1) parts[0] = own;
    Columns sum;
    sum.fill(0.0f);
#pragma unroll
    for (std::uint32_t rank = 0; rank < megakernel::kMaxRanks; ++rank) {
        if (rank >= s.ranks) continue;
        const std::uint32_t words[4] = {parts[rank].x, parts[rank].y, parts[rank].z, parts[rank].w};
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            const float2 value = unpack_bf16(words[i]);
            sum.pair[i] = {sum.pair[i].x + value.x, sum.pair[i].y + value.y};
        }
    }
    return sum;
}

// Over a row: x p^2, y (alpha r)^2, z alpha r beta p, w (beta p)^2.
__device__ __forceinline__ float4 sums_of(const Columns& p, const Columns& r, const Columns& alpha,
                                          const Columns& beta) {
    float4 sums{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
        const float ar[2] = {alpha.pair[i].x * r.pair[i].x, alpha.pair[i].y * r.pair[i].y};
        const float bp[2] = {beta.pair[i].x * p.pair[i].x, beta.pair[i].y * p.pair[i].y};
        sums.x += p.pair[i].x * p.pair[i].x + p.pair[i].y * p.pair[i].y;
        sums.y += ar[0] * ar[0] + ar[1] * ar[1];
        sums.z += ar[0] * bp[0] + ar[1] * bp[1];
        sums.w += bp[0] * bp[0] + bp[1] * bp[1];
    }
    return sums;
}

__device__ __forceinline__ float4 add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// Of all threads of the cluster, in a fixed order. The cluster has arrived once before.
__device__ __forceinline__ float4 sum_row(StopShared& shared, float4 own) {
    const auto cluster = cooperative_groups::this_cluster();
    own = {sum_lanes<kLanes>(own.x), sum_lanes<kLanes>(own.y), sum_lanes<kLanes>(own.z), sum_lanes<kLanes>(own.w)};
    if (threadIdx.x % kLanes == 0) shared.warps[threadIdx.x / kLanes] = own;
    __syncthreads();
    cluster.barrier_wait();  // the other blocks have begun, so their shared memory is there
    if (threadIdx.x < cluster.num_blocks()) {
        float4 block = shared.warps[0];
#pragma unroll
        for (std::uint32_t warp = 1; warp < kStopWarps; ++warp) block = add(block, shared.warps[warp]);
        *cluster.map_shared_rank(&shared.blocks[cluster.block_rank()], threadIdx.x) = block;
    }
    cluster.sync();
    float4 row = shared.blocks[0];
    for (std::uint32_t block = 1; block < cluster.num_blocks(); ++block) row = add(row, shared.blocks[block]);
    return row;
}

template <bool kBranch>
__device__ __forceinline__ void stop(const ChainParams& params, const StopData& data, StopShared& shared) {
    const Shape& s = params.shape;
    cooperative_groups::this_cluster().barrier_arrive();
    const std::uint32_t word = blockIdx.x * kStopThreads + threadIdx.x, token = blockIdx.y;
    const std::uint32_t chunk = word / 4, first = chunk * kChunkK + word % 4 * 2;
    const bool mine = word * kThreadColumns < s.hidden;
    Columns alpha, beta, scale, norm, residual, branch;
    norm.fill(0.0f);
    alpha.fill(1.0f);
    beta.fill(0.0f);
    scale.fill(1.0f);
    if (mine) {
        norm.load(data.norm, first);
        if constexpr (kBranch) {
            alpha.load(data.alpha, first);
            beta.load(data.beta, first);
            if (data.scale != nullptr) scale.load(data.scale, first);
        }
    }
    wait_for_kernels_before();
    residual.fill(0.0f);
    branch.fill(0.0f);
    const std::size_t place = (std::size_t{chunk} * kTokens + token) * (kChunkBytes / kLoadBytes) + word % 4;
    if (mine) {
        residual.load(data.residual + std::size_t{token} * s.hidden, first);
        if constexpr (kBranch) branch = sum_ranks(params, place);
    }
    if (data.scale != nullptr) {
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            branch.pair[i] = {round_bf16(scale.pair[i].x * branch.pair[i].x),
                              round_bf16(scale.pair[i].y * branch.pair[i].y)};
        }
    }
    const float4 row = sum_row(shared, sums_of(branch, residual, alpha, beta));
    if (!mine) return;
    const float width = static_cast<float>(s.hidden), shrink = kBranch ? rsqrtf(row.x / width + s.post_eps) : 0.0f;
    const float mean = (row.y + 2.0f * shrink * row.z + shrink * shrink * row.w) / width;
    const float grow = rsqrtf(mean + s.rms_eps);
    std::uint32_t words[4];
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
        float2 out = residual.pair[i];
        if constexpr (kBranch) {
            out = {alpha.pair[i].x * out.x + beta.pair[i].x * (branch.pair[i].x * shrink),
                   alpha.pair[i].y * out.y + beta.pair[i].y * (branch.pair[i].y * shrink)};
            *reinterpret_cast<float2*>(data.out + std::size_t{token} * s.hidden + first + i * 8) = out;
        }
        words[i] = pack_bf16(out.x * grow * norm.pair[i].x, out.y * grow * norm.pair[i].y);
    }
    scratch<uint4>(params, params.at.x)[place] = {words[0], words[1], words[2], words[3]};
}

}  // namespace musetrace::baseline::ops
