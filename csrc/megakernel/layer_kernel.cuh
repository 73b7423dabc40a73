// The kernels of the megakernel, in all their builds, for the host that starts them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "megakernel/layer_params.h"
#include "musetrace/stamp.cuh"

namespace musetrace::megakernel {

// kDelays: a debug build that sleeps up to 4 us at the begin of every job, other for each block and warp.
// kAbsent: compiled from a source without stamps; the machine code is that of kOff.
enum class LayerBuild : std::uint8_t { kOff, kStore, kRegister, kDelays, kAbsent };
inline constexpr LayerBuild kLayerBuilds[] = {LayerBuild::kOff, LayerBuild::kStore, LayerBuild::kRegister,
                                              LayerBuild::kDelays, LayerBuild::kAbsent};

constexpr StampMode stamp_mode(LayerBuild build) {
    return build == LayerBuild::kStore      ? StampMode::kStore
           : build == LayerBuild::kRegister ? StampMode::kRegister
                                            : StampMode::kOff;
}

struct KernelFit {
    int blocks;  // that the device holds at once
    int registers;
    std::size_t local_bytes;  // stack and spills of a thread
    std::size_t shared_bytes;
};

// All of these return a cudaError_t. The launches do not wait for the end.
int fit_layer(LayerBuild build, KernelFit& fit);
int launch_layer(LayerBuild build, const LayerParams& params, cudaStream_t stream);
int fit_head(LayerBuild build, KernelFit& fit);
int launch_head(LayerBuild build, const HeadParams& params, cudaStream_t stream);
// Adds up the slices of lm_head, and makes the logits of them.
int launch_head_sum(const HeadParams& params, cudaStream_t stream);

// What all kernels need: threads, shared memory, and a launch that may start before the one in front has ended.
int fit_kernel(const void* kernel, std::size_t shared_bytes, KernelFit& fit);
int launch_kernel(const void* kernel, std::uint32_t blocks, std::size_t shared_bytes, void* params, bool programmatic,
                  cudaStream_t stream);

// One file for each build, so that they compile side by side.
using LayerKernel = void (*)(LayerParams);
template <LayerBuild kBuild>
LayerKernel layer_kernel();
extern template LayerKernel layer_kernel<LayerBuild::kOff>();
extern template LayerKernel layer_kernel<LayerBuild::kStore>();
extern template LayerKernel layer_kernel<LayerBuild::kRegister>();
extern template LayerKernel layer_kernel<LayerBuild::kDelays>();
extern template LayerKernel layer_kernel<LayerBuild::kAbsent>();
// The head without stamps.
using HeadKernel = void (*)(HeadParams);
HeadKernel absent_head_kernel();

}  // namespace musetrace::megakernel
