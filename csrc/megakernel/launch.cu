#include "megakernel/block.cuh"
#include "megakernel/layer_kernel.cuh"

namespace musetrace::megakernel {
namespace {

const void* kernel_of(LayerBuild build) {
    switch (build) {
        case LayerBuild::kOff:
            return reinterpret_cast<const void*>(layer_kernel<LayerBuild::kOff>());
        case LayerBuild::kStore:
            return reinterpret_cast<const void*>(layer_kernel<LayerBuild::kStore>());
        case LayerBuild::kRegister:
            return reinterpret_cast<const void*>(layer_kernel<LayerBuild::kRegister>());
        case LayerBuild::kAbsent:
            return reinterpret_cast<const void*>(layer_kernel<LayerBuild::kAbsent>());
        default:
            return reinterpret_cast<const void*>(layer_kernel<LayerBuild::kDelays>());
    }
}

}  // namespace

int fit_kernel(const void* kernel, std::size_t shared_bytes, KernelFit& fit) {
    cudaFuncAttributes attributes{};
    int device = 0, processors = 0, blocks = 0;
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaSuccess) error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kBlockThreads, shared_bytes);
    }
    fit = {blocks * processors, attributes.numRegs, attributes.localSizeBytes, shared_bytes};
    return error;
}

int launch_kernel(const void* kernel, std::uint32_t blocks, std::size_t shared_bytes, void* params, bool programmatic,
                  cudaStream_t stream) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kBlockThreads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = programmatic ? 1 : 0;
    void* arguments[] = {params};
    return cudaLaunchKernelExC(&config, kernel, arguments);
}

int fit_layer(LayerBuild build, KernelFit& fit) { return fit_kernel(kernel_of(build), sizeof(SharedMemory), fit); }

int launch_layer(LayerBuild build, const LayerParams& params, cudaStream_t stream) {
    return launch_kernel(kernel_of(build), params.ranks * params.shape.blocks, sizeof(SharedMemory),
                         const_cast<LayerParams*>(&params), params.programmatic, stream);
}

}  // namespace musetrace::megakernel
