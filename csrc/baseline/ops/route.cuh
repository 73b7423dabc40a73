// Top-k of every token and the list of work for the grouped products. One block: two tokens a warp, then a thread for
// each expert.
#pragma once

#include "baseline/ops/normalize.cuh"

namespace musetrace::baseline::ops {

using megakernel::kExpertTokens;
using megakernel::kMaxPairs;

inline constexpr std::uint32_t kLaneExperts = 8;
inline constexpr std::uint32_t kMostExperts = kLanes * kLaneExperts;
static_assert(kMostExperts == kRouteThreads && kTokensPerWarp * kRouteWarps == kTokens);

struct RouteShared {
    alignas(16) std::uint8_t ids[kMaxPairs];  // [token][place], ascending in a token
    std::uint32_t sums[kRouteWarps];
};

// An order of floats as unsigned numbers; 0 is below all.
__device__ __forceinline__ std::uint32_t ordered(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    return bits ^ (bits >> 31 != 0 ? 0xFFFFFFFFu : 0x80000000u);
}

// The lane's chosen experts as bits. Largest score + bias first, ties to the lowest id.
__device__ __forceinline__ std::uint32_t choose(std::uint32_t top_k, std::uint32_t lane,
                                                const std::uint32_t (&key)[kLaneExperts]) {
    std::uint32_t chosen = 0;
#pragma unroll 1
    for (std::uint32_t round = 0; round < top_k; ++round) {
        std::uint32_t best = 0, at = 0;
#pragma unroll
        for (std::uint32_t e = 0; e < kLaneExperts; ++e) {
            const bool free = (chosen >> e & 1u) == 0;
            if (free && key[e] > best) {
                best = key[e];
                at = e;
            }
        }
        const std::uint32_t top = __reduce_max_sync(kAllLanes, best);
        const std::uint32_t lanes = __ballot_sync(kAllLanes, best == top);
        if (lane == __ffs(lanes) - 1u) chosen |= 1u << at;
    }
    return chosen;
}

// A warp's token: ids and weights by ascending id. Weights are the scores without the bias, renormalised.
__device__ __forceinline__ void route_token(const ChainParams& params, std::uint32_t token,
                                            const float (&bias)[kLaneExperts], RouteShared& shared, WorkList& list) {
    const Shape& s = params.shape;
    const std::uint32_t lane = threadIdx.x % kLanes;
    const bool mine = lane * kLaneExperts < s.experts;
    const float* logits =
        scratch<float>(params, params.at.logits) + std::size_t{token} * s.experts + lane * kLaneExperts;
    float score[kLaneExperts];
    std::uint32_t key[kLaneExperts];
#pragma unroll
    for (std::uint32_t e = 0; e < kLaneExperts; ++e) {
        score[e] = mine ? 1.0f / (1.0f + expf(-logits[e] * s.output_multiplier)) : 0.0f;
        key[e] = mine ? ordered(score[e] + bias[e]) : 0;
    }
    const std::uint32_t chosen = choose(s.top_k, lane, key);
    float sum = 0.0f;
    std::uint32_t place = 0;
#pragma unroll
    for (std::uint32_t e = 0; e < kLaneExperts; ++e) {
        if (chosen >> e & 1u) sum += score[e];
        place += __popc(__ballot_sync(kAllLanes, chosen >> e & 1u) & ((1u << lane) - 1u));
    }
    sum = sum_lanes<kLanes>(sum);
#pragma unroll
    for (std::uint32_t e = 0; e < kLaneExperts; ++e) {
        if ((chosen >> e & 1u) == 0) continue;
        const std::uint32_t pair = token * s.top_k + place++;
        shared.ids[pair] = static_cast<std::uint8_t>(lane * kLaneExperts + e);
        list.weights[pair] = score[e] / (sum + 1e-15f) * s.routed_scale;
    }
}

// The thread's expert: a bit for each of its pairs, and how many there are.
struct ExpertPairs {
    std::uint32_t bits[kMaxPairs / 32] = {};
    std::uint32_t count = 0;

    __device__ __forceinline__ ExpertPairs(const RouteShared& shared, std::uint32_t pairs) {
        const auto* ids = reinterpret_cast<const std::uint32_t*>(shared.ids);
#pragma unroll
        for (std::uint32_t i = 0; i < kMaxPairs / 4; ++i) {
            if (i * 4 >= pairs) break;
            const std::uint32_t equal = __vcmpeq4(ids[i], threadIdx.x * 0x01010101u) & 0x08040201u;
            const std::uint32_t four = (equal | equal >> 8 | equal >> 16 | equal >> 24) & 0xFu;
            bits[i / 8] |= four << i % 8 * 4;
            count += __popc(four);
        }
    }
};

// Its pairs behind those of the experts before, in items of up to eight.
__device__ __forceinline__ void list_work(const ChainParams& params, RouteShared& shared, WorkList& list) {
    const ExpertPairs mine(shared, params.shape.pairs());
    const std::uint32_t lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
    // Inclusive sums of (items, pairs).
    const std::uint32_t own = megakernel::ceil_div(mine.count, kExpertTokens) << 16 | mine.count;
    std::uint32_t before = own;
#pragma unroll
    for (std::uint32_t step = 1; step < kLanes; step *= 2) {
        const std::uint32_t lower = __shfl_up_sync(kAllLanes, before, step);
        if (lane >= step) before += lower;
    }
    if (lane == kLanes - 1) shared.sums[warp] = before;
    __syncthreads();
    before -= own;
#pragma unroll
    for (std::uint32_t i = 0; i < kRouteWarps; ++i) {
        if (i < warp) before += shared.sums[i];
    }
    std::uint32_t item = before >> 16, first = before & 0xFFFFu, count = mine.count;
    if (threadIdx.x == kRouteThreads - 1) list.item_count = item + (own >> 16);
    std::uint32_t at = first;
#pragma unroll
    for (std::uint32_t word = 0; word < kMaxPairs / 32; ++word) {
        for (std::uint32_t bits = mine.bits[word]; bits != 0; bits &= bits - 1) {
            list.pairs[at++] = static_cast<std::uint8_t>(word * 32 + __ffs(bits) - 1);
        }
    }
    for (; count != 0; ++item) {
        const std::uint32_t part = min(count, kExpertTokens);
        list.items[item] = {static_cast<std::uint16_t>(threadIdx.x), static_cast<std::uint8_t>(first),
                            static_cast<std::uint8_t>(part)};
        first += part;
        count -= part;
    }
}

__device__ __forceinline__ void route(const ChainParams& params, RouteShared& shared) {
    const std::uint32_t lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
    float bias[kLaneExperts];
#pragma unroll
    for (std::uint32_t e = 0; e < kLaneExperts; ++e) {
        bias[e] = lane * kLaneExperts < params.shape.experts ? params.layer.router_bias[lane * kLaneExperts + e] : 0.0f;
    }
    wait_for_kernels_before();
    WorkList& list = *scratch<WorkList>(params, params.at.list);
#pragma unroll
    for (std::uint32_t i = 0; i < kTokensPerWarp; ++i)
        route_token(params, warp * kTokensPerWarp + i, bias, shared, list);
    __syncthreads();
    list_work(params, shared, list);
}

}  // namespace musetrace::baseline::ops
