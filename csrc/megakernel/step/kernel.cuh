// The kernel of the small launches of a step in all its builds, for the host that starts it.
#pragma once

#include "megakernel/layer_kernel.cuh"
#include "megakernel/step/params.h"

namespace musetrace::megakernel::step {

// Both return a cudaError_t. The launch does not wait for the end.
int fit_step(LayerBuild build, KernelFit& fit);
int launch_step(LayerBuild build, const StepParams& params, cudaStream_t stream);

using StepKernel = void (*)(StepParams);
// Without stamps.
StepKernel absent_step_kernel();

}  // namespace musetrace::megakernel::step
