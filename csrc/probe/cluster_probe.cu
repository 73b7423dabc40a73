// How many clusters of blocks run at once.
#include "probe/device_probe.h"
#include "probe/launch.cuh"

namespace musetrace::probe {
namespace {

constexpr std::uint32_t kThreads = 384;
constexpr std::size_t kSharedBytes = 160 * 1024;
constexpr std::uint32_t kLargestPortable = 8;

__global__ void __launch_bounds__(kThreads) in_cluster(char* sink) {
    extern __shared__ char bytes[];
    if (sink != nullptr) *sink = bytes[threadIdx.x];
}

}  // namespace

std::vector<std::uint32_t> measure_clusters(const std::vector<std::uint32_t>& sizes) {
    check(cudaFuncSetAttribute(in_cluster, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
          "asking for shared memory");
    check(cudaFuncSetAttribute(in_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "asking for large clusters");
    std::vector<std::uint32_t> fit;
    for (const std::uint32_t size : sizes) {
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {size, 1, 1};
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(size);
        config.blockDim = dim3(kThreads);
        config.dynamicSmemBytes = kSharedBytes;
        config.attrs = &attribute;
        config.numAttrs = 1;
        int clusters = 0;
        const cudaError_t error = cudaOccupancyMaxActiveClusters(&clusters, in_cluster, &config);
        // A GPU may not know clusters of more than 8 blocks; that is an answer too.
        if (error != cudaSuccess && size > kLargestPortable) {
            cudaGetLastError();
            clusters = 0;
        } else {
            check(error, "asking how many clusters of " + std::to_string(size) + " blocks fit");
        }
        fit.push_back(static_cast<std::uint32_t>(clusters));
    }
    return fit;
}

}  // namespace musetrace::probe
