// How the chain's kernels are launched, and what they do at their begin.
//
// With programmatic launch a kernel begins while those before it still run. Every kernel of the chain therefore keeps
// to this: before wait_for_kernels_before() it reads only weights and what the host wrote, and writes nothing; each
// block calls that function. So a kernel ends after all kernels before it, and what holds for two neighbours holds for
// the whole chain.
#pragma once

#include <cstdint>

#include "baseline/kernels.h"
#include "megakernel/block.cuh"

namespace musetrace::baseline {

using megakernel::kChunkBytes;
using megakernel::kChunkK;
using megakernel::kChunkWords;
using megakernel::kGroupThreads;
using megakernel::kLanes;
using megakernel::kLoadBytes;
using megakernel::kTileRows;
using megakernel::load_pair;
using megakernel::pack_bf16;
using megakernel::pair_place;
using megakernel::round_bf16;
using megakernel::unpack_bf16;
using sync::kAllLanes;

inline constexpr std::uint32_t kHeadDim = 64;

// Limit of bytes on their way per SM. A verify step of the slice (B3, H200) takes 6,912 us with 18 KB, 6,866 with 32,
// 6,945 with 48 and 7,020 with 72.
inline constexpr std::uint32_t kInFlightBytes = 32 * 1024;

__device__ __forceinline__ void wait_for_kernels_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;"); }

__device__ __forceinline__ sync::Waiter waiter_of(const ChainParams& params, std::uint32_t warp) {
    return {params.report, params.budget_ns, 0, blockIdx.x, warp, &params.report->abort};
}
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

template <class T>
__device__ __forceinline__ T* scratch(const ChainParams& params, std::uint64_t offset) {
    return reinterpret_cast<T*>(params.scratch + offset);
}

// Sum over `kWidth` neighbouring lanes, each of them gets it.
template <std::uint32_t kWidth>
__device__ __forceinline__ float sum_lanes(float value) {
#pragma unroll
    for (std::uint32_t step = 1; step < kWidth; step *= 2) value += __shfl_xor_sync(kAllLanes, value, step);
    return value;
}

// One lane: activations into shared memory, counted by the barrier. Many blocks read them, so they stay in L2.
__device__ __forceinline__ void copy_activations(sync::GpuBarrier& barrier, void* shared, const void* global,
                                                 std::uint32_t bytes) {
    barrier.arrive_expecting(bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(bytes), "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(&barrier)))
                 : "memory");
}

struct Grid {
    dim3 blocks;
    std::uint32_t threads;
    std::size_t shared_bytes = 0;
    std::uint32_t cluster = 1;
};

template <class... Args>
cudaError_t launch_kernel(void (*kernel)(Args...), const Grid& grid, Launch launch, const Args&... args) {
    constexpr std::size_t kWithoutAsking = 48 * 1024;
    if (grid.shared_bytes > kWithoutAsking) {
        const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(grid.shared_bytes));
        if (error != cudaSuccess) return error;
    }
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config{};
    config.gridDim = grid.blocks;
    config.blockDim = dim3(grid.threads);
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = launch.stream;
    config.attrs = attributes;
    if (launch.mode == ChainMode::kProgrammatic) {
        cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    if (grid.cluster > 1) {
        cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = grid.cluster;
        attribute.val.clusterDim.y = 1;
        attribute.val.clusterDim.z = 1;
    }
    return cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace musetrace::baseline
