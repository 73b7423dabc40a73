// How the probe launches its kernels: all blocks at once, one on each SM, waits bounded.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "megakernel/cuda_errors.h"
#include "musetrace/abi/wait_report.h"
#include "probe/device_buffer.h"
#include "sync/wait.h"

namespace musetrace::probe {

// What a kernel of the probe waits for, in place of a job's id.
enum Site : std::uint32_t { kCopyLands, kSlotFills, kBlocksArrive, kHostAsks, kMeasured, kNumSites };

// How long a wait may take. What is waited for takes microseconds.
inline constexpr std::uint64_t kBudgetNs = 20'000'000;

struct LaunchShape {
    std::uint32_t blocks;
    std::uint32_t threads;
    std::size_t shared_bytes = 0;
    bool programmatic = false;  // may begin before the launch before it has ended
};

inline std::uint32_t num_sms() {
    int device = 0, sms = 0;
    check(cudaGetDevice(&device), "asking for the GPU");
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "asking for the number of SMs");
    return static_cast<std::uint32_t>(sms);
}

// Before the first launch. Throws where the blocks cannot all run at once: they wait for each other.
template <class... Params>
void prepare(void (*kernel)(Params...), const LaunchShape& shape) {
    const auto bytes = static_cast<int>(shape.shared_bytes);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "asking for " + std::to_string(bytes) + " bytes of shared memory");
    int per_sm = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, static_cast<int>(shape.threads),
                                                        shape.shared_bytes),
          "asking how many blocks fit");
    const std::uint32_t fit = static_cast<std::uint32_t>(per_sm) * num_sms();
    if (shape.blocks <= fit) return;
    throw std::runtime_error(std::to_string(shape.blocks) + " blocks do not fit on this GPU at once, " +
                             std::to_string(fit) + " do");
}

// Does not wait for the end.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, const Args&... args) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(shape.blocks);
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = shape.programmatic ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), "launching a kernel of the probe");
}

// The report of a measurement's waits.
class Report {
  public:
    abi::WaitReport* get() const { return memory_.get(); }

    // Waits for all launches, and throws when one of them failed or gave up a wait.
    void check_all() const {
        static constexpr const char* kNames[kNumSites] = {"a bulk copy to land", "another block's slot",
                                                          "all blocks to arrive", "the host", "the measuring warps"};
        check(cudaDeviceSynchronize(), "running a kernel of the probe");
        const abi::WaitReport said = memory_.to_host()[0];
        if (said.claimed == 0) return;
        const char* what = said.site < kNumSites ? kNames[said.site] : "something unknown";
        throw std::runtime_error("block " + std::to_string(said.block) + " waited " + std::to_string(said.waited_ns) +
                                 " ns for " + what + " and gave up");
    }

  private:
    DeviceBuffer<abi::WaitReport> memory_{1};
};

__device__ __forceinline__ sync::Waiter waiter_of(abi::WaitReport* report, std::uint64_t budget_ns = kBudgetNs) {
    return {report, budget_ns, 0, blockIdx.x, 0, &report->abort};
}

// With programmatic launch: lets the next launch begin, and waits until all launches before have ended.
__device__ __forceinline__ void let_next_launch_begin() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ __forceinline__ void wait_for_launch_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace musetrace::probe
