// The draft kernel in all its builds, for the host that starts it.
#pragma once

#include "megakernel/draft/params.h"
#include "megakernel/layer_kernel.cuh"

namespace musetrace::megakernel::draft {

// All of these return a cudaError_t. The launches do not wait for the end.
int fit_draft(LayerBuild build, KernelFit& fit);
int launch_draft(LayerBuild build, const DraftParams& params, cudaStream_t stream);

// One file for each build, so that they compile side by side.
using DraftKernel = void (*)(DraftParams);
template <LayerBuild kBuild>
DraftKernel draft_kernel();
extern template DraftKernel draft_kernel<LayerBuild::kOff>();
extern template DraftKernel draft_kernel<LayerBuild::kStore>();
extern template DraftKernel draft_kernel<LayerBuild::kRegister>();
extern template DraftKernel draft_kernel<LayerBuild::kDelays>();
extern template DraftKernel draft_kernel<LayerBuild::kAbsent>();

}  // namespace musetrace::megakernel::draft
