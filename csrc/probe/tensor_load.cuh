// Warps that keep the tensor cores of an SM busy while another one measures.
#pragma once

#include <cstdint>

#include "megakernel/dequant.cuh"
#include "probe/clocks.cuh"
#include "sync/gpu_arch.cuh"

namespace musetrace::probe {

// Values of 1 to 2 and both signs, two bf16: power depends on what is multiplied.
__device__ __forceinline__ std::uint32_t bf16_pair(std::uint32_t seed) {
    return (seed * 0x9E3779B9u & 0x807F807Fu) | 0x3F803F80u;
}

// The warp, until `stop`, in shared memory, is set. Its lanes leave together: a matrix instruction needs all of them.
__device__ __forceinline__ void multiply_until(const volatile std::uint32_t& stop, std::uint64_t deadline_ns,
                                               float* sink) {
    constexpr std::uint32_t kChains = 4, kSteps = 32;
    megakernel::AFragment a[kChains];
    std::uint32_t seed = threadIdx.x * 32 + 1;
#pragma unroll
    for (std::uint32_t i = 0; i < kChains * 4; ++i) a[i / 4].reg[i % 4] = bf16_pair(seed++);
    const std::uint32_t b0 = bf16_pair(seed), b1 = bf16_pair(seed + 1);
    float sums[kChains][4] = {};
#pragma unroll 1
    while (!__any_sync(sync::kAllLanes, stop != 0 || stamp_clock_ns() >= deadline_ns)) {
#pragma unroll
        for (std::uint32_t i = 0; i < kSteps; ++i) megakernel::multiply_add(sums[i % kChains], a[i % kChains], b0, b1);
    }
    float sum = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kChains * 4; ++i) sum += sums[i / 4][i % 4];
    if (sum == 0.5f) *sink = sum;  // never, but the compiler cannot know
}

}  // namespace musetrace::probe
