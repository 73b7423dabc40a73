// The softmax of an attention whose warps take keys in runs of 32, whatever the size of a head is: run by run in a
// warp, then the merge of a block's eight warps. Lane 4 g + t has tokens g and g + 8.
#pragma once

#include "megakernel/block.cuh"

namespace musetrace::megakernel::ops {

inline constexpr std::uint32_t kKeyRun = 32;

__device__ __forceinline__ void prefetch_line(const void* line) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

// The first run of keys, from `first` on, of one of the `parts`, a power of two, that share them. A run's part follows
// from where its keys lie in the cache alone, so a token's sums have one order, wherever the pass begins that it is in.
__device__ __forceinline__ std::uint32_t first_run_of(std::uint32_t part, std::uint32_t parts, std::uint32_t first) {
    return first + ((part - first) & (parts - 1));
}

// kPartsAtOnce: of the eight warps' parts, how many a thread asks for before it adds the first. More is sooner done,
// and more code.
template <std::uint32_t kHeadDim, std::uint32_t kPartsAtOnce = 1>
struct OnlineSoftmax {
    static constexpr std::uint32_t kDims = kHeadDim / 8;  // eight dimensions: an n of the output
    static constexpr std::uint32_t kPartFloats = part_floats(kHeadDim);

    float output[kDims][4] = {};            // [dimensions 8 n]: tokens g and g + 8, as multiply_add has them
    float top[2] = {-INFINITY, -INFINITY};  // of token g and g + 8, in units of log 2
    float sum[2] = {0.0f, 0.0f};

    // The scores of token g + 8 `row`, in units of log 2, become weights; `top_of_lane` is the largest of them and of
    // those before.
    __device__ __forceinline__ void weigh(std::uint32_t row, float top_of_lane, float (&scores)[4][4]) {
        float most = fmaxf(top_of_lane, __shfl_xor_sync(kAllLanes, top_of_lane, 1));
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
        // Nothing seen yet: any finite number gives zeros below.
        const float base = most == -INFINITY ? 0.0f : most;
        const float fade = exp2f(top[row] - base);
        top[row] = most;
        sum[row] *= fade;
#pragma unroll
        for (std::uint32_t n = 0; n < kDims; ++n) {
            output[n][row * 2] *= fade;
            output[n][row * 2 + 1] *= fade;
        }
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i) {
            float& score = scores[i / 2][row * 2 + i % 2];
            score = exp2f(score - base);
            sum[row] += score;
        }
    }

    // The part of one of the eight warps; `parts`: [warp][token][kPartFloats].
    __device__ __forceinline__ void leave_part(float* parts, std::uint32_t warp, std::uint32_t g,
                                               std::uint32_t t) const {
#pragma unroll
        for (std::uint32_t row = 0; row < 2; ++row) {
            float all = sum[row];
            all += __shfl_xor_sync(kAllLanes, all, 1);
            all += __shfl_xor_sync(kAllLanes, all, 2);
            float* part = parts + (warp * kTokens + g + row * 8) * kPartFloats;
#pragma unroll
            for (std::uint32_t n = 0; n < kDims; ++n) {
                *reinterpret_cast<float2*>(part + n * 8 + 2 * t) = {output[n][row * 2], output[n][row * 2 + 1]};
            }
            if (t == 0) *reinterpret_cast<float2*>(part + kHeadDim) = {top[row], all};
        }
    }

    // Puts the eight warps' parts together, in their order, and sends the item's part.
    template <class W>
    __device__ __forceinline__ void merge_warps(W& w, std::uint32_t site, std::uint32_t head,
                                                std::uint32_t split) const {
        float* parts = reinterpret_cast<float*>(w.shared.pool);
        const std::uint32_t g = w.lane / 4, t = w.lane % 4;
        w.meet(site);  // the parts of the item before have been read
        leave_part(parts, w.group_warp(), g, t);
        w.meet(site);
        send_part(w, parts, head, split);
    }

  private:
    // A thread for each token and four of 64 dimensions.
    template <class W>
    static __device__ __forceinline__ void send_part(W& w, const float* parts, std::uint32_t head,
                                                     std::uint32_t split) {
        const std::uint32_t token = w.group_thread() / 16, place = w.group_thread() % 16;
        float top = -INFINITY;
#pragma unroll kPartsAtOnce
        for (std::uint32_t part = 0; part < kGroupWarps; ++part) {
            top = fmaxf(top, parts[(part * kTokens + token) * kPartFloats + kHeadDim]);
        }
        const float base = top == -INFINITY ? 0.0f : top;
        float sum = 0.0f;
        float4 output[kHeadDim / 64] = {};
#pragma unroll kPartsAtOnce
        for (std::uint32_t part = 0; part < kGroupWarps; ++part) {
            const float* from = parts + (part * kTokens + token) * kPartFloats;
            const float weight = exp2f(from[kHeadDim] - base);
            sum += weight * from[kHeadDim + 1];
#pragma unroll
            for (std::uint32_t i = 0; i < kHeadDim / 64; ++i) {
                const float4 value = *reinterpret_cast<const float4*>(from + i * 64 + place * 4);
                output[i].x += weight * value.x;
                output[i].y += weight * value.y;
                output[i].z += weight * value.z;
                output[i].w += weight * value.w;
            }
        }
        const std::size_t row = (std::size_t{head} * kTokens + token) * w.plan().splits + split;
        char* to = w.slots(w.params.exchange.attention) + row * kPartFloats * 4;
#pragma unroll
        for (std::uint32_t i = 0; i < kHeadDim / 64; ++i) {
            sync::send_slots(to + i * 256 + place * 16, reinterpret_cast<const uint4&>(output[i]));
        }
        const float4 rest{top, sum, 0.0f, 0.0f};
        if (place == 0) sync::send_slots(to + kHeadDim * 4, reinterpret_cast<const uint4&>(rest));
    }
};

// The weights of 16 of the 32 keys, as A. A weight is two bf16 numbers, 16 bits in all: with one, the output would
// carry its rounding.
struct SplitWeights {
    AFragment high, low;
    __device__ __forceinline__ SplitWeights(const float (&scores)[4][4], std::uint32_t half) {
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            const float* pair = &scores[2 * half + i / 2][i % 2 * 2];
            high.reg[i] = pack_bf16(pair[0], pair[1]);
            const float2 kept = unpack_bf16(high.reg[i]);
            low.reg[i] = pack_bf16(pair[0] - kept.x, pair[1] - kept.y);
        }
    }
};

}  // namespace musetrace::megakernel::ops
