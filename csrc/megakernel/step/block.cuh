// A block's shared memory in a step launch, and what one warp carries.
#pragma once

#include <cstdint>

#include "megakernel/block.cuh"
#include "megakernel/step/params.h"
#include "musetrace/abi/muse_step_jobs.h"

namespace musetrace::megakernel::step {

using abi::MuseStep;

inline constexpr std::uint32_t kWarps = MuseStep::kWarpsPerBlock;

template <std::uint32_t kJob>
__device__ __forceinline__ Job step_job() {
    return pick_job_of<MuseStep, kJob>(0);
}

// A token and what speaks for it: a logit, or its logarithm of a probability.
struct Candidate {
    float score = -INFINITY;
    std::uint32_t token = 0xFFFFFFFF;
};

struct SharedMemory {
    float score[kTokens][kMaxTopK];  // the best of each row, best first
    std::uint32_t token[kTokens][kMaxTopK];
    Candidate found[kWarps][kMaxTopK];  // in the warps' parts of the block's part of a row, best first
    double exponentials[kWarps];        // and the sum of exp(score - best score) over them
    float sums[2][kWarps];
    bool received[kWarps];  // all parts that the warp puts together
    std::uint32_t delay_seed;
    sync::Waiter waiter;
    BlockSlots<MuseStep> stamps;
};

template <StampMode kMode, bool kDelays>
struct Warp : BlockWarp<SharedMemory, MuseStep, kMode, kDelays, 1> {
    const StepParams& params;
    std::uint32_t rank;  // among those here

    __device__ __forceinline__ const Shape& shape() const { return params.shape; }
    // Only behind the launch in front.
    __device__ __forceinline__ const StepState& state() const { return *params.state; }
    // Among the warps of a rank: the first ones are of different blocks.
    __device__ __forceinline__ std::uint32_t number() const { return this->warp * shape().blocks + this->block(); }
    __device__ __forceinline__ std::uint32_t warps() const { return shape().blocks * kWarps; }
    // The block that puts the parts of all ranks together.
    __device__ __forceinline__ bool merges() const { return rank == 0 && this->block() == 0; }
    // Whether a wait was given up, of this launch's or of one in front: what there is then is no one's logits.
    __device__ __forceinline__ bool is_given_up() const { return sync::GpuArch::load_relaxed(params.abort) != 0; }
};

}  // namespace musetrace::megakernel::step
