// A block's shared memory in a step launch, and what one warp carries.
#pragma once

#include <cstdint>

#include "megakernel/block.cuh"
#include "megakernel/step/params.h"
#include "musetrace/abi/muse_step_jobs.h"

namespace musetrace::megakernel::step {

using abi::MuseStep;

inline constexpr std::uint32_t kWarps = MuseStep::kWarpsPerBlock;

struct SharedMemory {
    float score[kTokens][kMaxTopK];  // the best of each row, best first
    std::uint32_t token[kTokens][kMaxTopK];
    float sums[2][kWarps];
    bool is_last;
    std::uint32_t delay_seed;
    sync::Waiter waiter;
    BlockSlots<MuseStep> stamps;
};

template <StampMode kMode>
struct Warp : BlockWarp<SharedMemory, MuseStep, kMode, false, 1> {
    const StepParams& params;
    std::uint32_t rank;

    __device__ __forceinline__ const Shape& shape() const { return params.shape; }
    // Only behind the launch in front.
    __device__ __forceinline__ const StepState& state() const { return *params.state; }
    // Among the warps of a rank: the first ones are of different blocks.
    __device__ __forceinline__ std::uint32_t number() const { return this->warp * shape().blocks + this->block(); }
    __device__ __forceinline__ std::uint32_t warps() const { return shape().blocks * kWarps; }

    // By all threads: whether the block is the last of all to come here. What others wrote in front of it is then
    // visible to this block. Nobody waits.
    __device__ __forceinline__ bool is_last_block() const {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            const bool last = atomicAdd(params.arrived, 1) == gridDim.x - 1;
            if (last) *params.arrived = 0;
            this->shared.is_last = last;
            __threadfence();
        }
        __syncthreads();
        return this->shared.is_last;
    }
};

}  // namespace musetrace::megakernel::step
