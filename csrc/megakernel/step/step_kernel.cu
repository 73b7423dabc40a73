#include "megakernel/step/entry.cuh"

namespace musetrace::megakernel::step {
namespace {

StepKernel kernel_of(LayerBuild build) {
    switch (build) {
        case LayerBuild::kStore:
            return muse_step<LayerBuild::kStore>;
        case LayerBuild::kRegister:
            return muse_step<LayerBuild::kRegister>;
        case LayerBuild::kDelays:
            return muse_step<LayerBuild::kDelays>;
        case LayerBuild::kAbsent:
            return absent_step_kernel();
        default:
            return muse_step<LayerBuild::kOff>;
    }
}

}  // namespace

int fit_step(LayerBuild build, KernelFit& fit) {
    return fit_kernel(reinterpret_cast<const void*>(kernel_of(build)), sizeof(SharedMemory), fit);
}

int launch_step(LayerBuild build, const StepParams& params, cudaStream_t stream) {
    return launch_kernel(reinterpret_cast<const void*>(kernel_of(build)), params.ranks * params.shape.blocks,
                         sizeof(SharedMemory), const_cast<StepParams*>(&params), params.programmatic, stream);
}

}  // namespace musetrace::megakernel::step
