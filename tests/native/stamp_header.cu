// The public header in a kernel of somebody else, in its three builds. Compiled, never run.
#include "musetrace/abi/muse_layer_jobs.h"
#include "musetrace/stamp.cuh"

namespace {

using Table = musetrace::abi::MuseLayer;

template <musetrace::StampMode kMode>
__global__ void stamp_every_role(musetrace::StampRegion region, std::uint32_t epoch, float* data) {
    if (threadIdx.x == 0) musetrace::stamp_block(region, blockIdx.x, epoch, 0);
    const std::uint32_t warp = threadIdx.x / musetrace::abi::kLanesPerWarp;
    musetrace::WarpStamps<Table, kMode> stamps(region, blockIdx.x, warp);
    if (warp == 0) {
        MUSETRACE_BEGIN(stamps, Table::qkv_load);
        data[threadIdx.x] += 1.0f;
        MUSETRACE_END(stamps, Table::qkv_load);
    } else {
        MUSETRACE_BEGIN(stamps, Table::attention_compute);
        data[threadIdx.x] *= 2.0f;
        MUSETRACE_END(stamps, Table::attention_compute);
        MUSETRACE_BEGIN(stamps, Table::lm_head_compute);
        data[threadIdx.x] *= 3.0f;
        MUSETRACE_END(stamps, Table::lm_head_compute);
    }
    stamps.flush();
}

template __global__ void stamp_every_role<musetrace::StampMode::kOff>(musetrace::StampRegion, std::uint32_t, float*);
template __global__ void stamp_every_role<musetrace::StampMode::kStore>(musetrace::StampRegion, std::uint32_t, float*);
template __global__ void stamp_every_role<musetrace::StampMode::kRegister>(musetrace::StampRegion, std::uint32_t,
                                                                           float*);

}  // namespace
