#include "megakernel/draft/block.cuh"
#include "megakernel/draft/kernel.cuh"

namespace musetrace::megakernel::draft {
namespace {

const void* kernel_of(LayerBuild build) {
    switch (build) {
        case LayerBuild::kOff:
            return reinterpret_cast<const void*>(draft_kernel<LayerBuild::kOff>());
        case LayerBuild::kStore:
            return reinterpret_cast<const void*>(draft_kernel<LayerBuild::kStore>());
        case LayerBuild::kRegister:
            return reinterpret_cast<const void*>(draft_kernel<LayerBuild::kRegister>());
        case LayerBuild::kAbsent:
            return reinterpret_cast<const void*>(draft_kernel<LayerBuild::kAbsent>());
        default:
            return reinterpret_cast<const void*>(draft_kernel<LayerBuild::kDelays>());
    }
}

}  // namespace

int fit_draft(LayerBuild build, KernelFit& fit) { return fit_kernel(kernel_of(build), sizeof(SharedMemory), fit); }

int launch_draft(LayerBuild build, const DraftParams& params, cudaStream_t stream) {
    return launch_kernel(kernel_of(build), params.ranks * params.shape.blocks, sizeof(SharedMemory),
                         const_cast<DraftParams*>(&params), params.programmatic, stream);
}

}  // namespace musetrace::megakernel::draft
