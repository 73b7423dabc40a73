#include "musetrace/abi/muse_layer_jobs.h"
#include "musetrace/stamp.cuh"
#include "probe/stamp_probe.cuh"

namespace musetrace::probe {
namespace {

using abi::MuseLayer;

constexpr std::uint32_t kThreads = MuseLayer::kWarpsPerBlock * abi::kLanesPerWarp;

// Every job from kJob on, one after the other, by the warps that stamp it.
template <std::uint32_t kJob, class Stamps>
__device__ void stamp_jobs(Stamps& stamps, std::uint32_t warp) {
    if constexpr (kJob < MuseLayer::kNumJobs) {
        constexpr std::uint32_t kStampers = MuseLayer::kRoles[MuseLayer::kJobs[kJob].role].stamping_warps;
        if (kStampers >> warp & 1u) {
            MUSETRACE_BEGIN(stamps, kJob);
            MUSETRACE_END(stamps, kJob);
        }
        stamp_jobs<kJob + 1>(stamps, warp);
    }
}

template <StampMode kMode>
__global__ void __launch_bounds__(kThreads) stamp_probe(char* base, std::uint32_t epoch) {
    const abi::StampLayout layout{gridDim.x, abi::kSlotMap<MuseLayer>.total, abi::slot_bytes(kMode)};
    const StampRegion region{kMode == StampMode::kOff ? nullptr : base, layout};
    const std::uint32_t warp = threadIdx.x / abi::kLanesPerWarp;
    if (threadIdx.x == 0) {
        std::uint32_t sm;
        asm("mov.u32 %0, %%smid;" : "=r"(sm));
        if (region.base != nullptr) stamp_block(region.header(blockIdx.x), epoch, sm);
    }
    __syncthreads();
    WarpStamps<MuseLayer, kMode> stamps(region, blockIdx.x, warp);
    stamp_jobs<0>(stamps, warp);
    stamps.flush();
}

__global__ void clock_reader(std::uint64_t* times, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) times[i] = stamp_clock_ns();
}

}  // namespace

int run_stamp_probe(StampMode mode, std::uint32_t blocks, std::uint32_t epoch, char* region) {
    switch (mode) {
        case StampMode::kOff:
            stamp_probe<StampMode::kOff><<<blocks, kThreads>>>(region, epoch);
            break;
        case StampMode::kStore:
            stamp_probe<StampMode::kStore><<<blocks, kThreads>>>(region, epoch);
            break;
        case StampMode::kRegister:
            stamp_probe<StampMode::kRegister><<<blocks, kThreads>>>(region, epoch);
    }
    const cudaError_t launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}

int read_clock(std::uint64_t* times, std::uint32_t count) {
    clock_reader<<<1, 1>>>(times, count);
    const cudaError_t launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}

}  // namespace musetrace::probe
