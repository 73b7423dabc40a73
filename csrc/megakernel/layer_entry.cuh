// The layer kernel's entry.
#pragma once

#include "megakernel/block_entry.cuh"
#include "megakernel/layer.cuh"

namespace musetrace::megakernel {

template <LayerBuild kBuild>
__global__ void __launch_bounds__(kBlockThreads, 1) muse_layer(const __grid_constant__ LayerParams params) {
    extern __shared__ __align__(128) char bytes[];
    BlockEntry<Layer, kBuild>::run(params, *reinterpret_cast<SharedMemory*>(bytes));
}

template <LayerBuild kBuild>
LayerKernel layer_kernel() {
    return muse_layer<kBuild>;
}

}  // namespace musetrace::megakernel
