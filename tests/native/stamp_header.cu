// The public header in a kernel of somebody else. Compiled, never run. -DMUSETRACE_STAMPS=0|1|2 says how.
#include "musetrace/stamp.cuh"

// clang-format off
#define GEMM_ROLES(ROLE)                                \
    ROLE(producer, 0, 0, 1u << 0)                       \
    ROLE(consumer, 1, 4, 1u << 1 | 1u << 3)             \
    ROLE(tiles,    0, 4, 0, musetrace::abi::kBlock)
#define GEMM_JOBS(JOB)                                                                                  \
    JOB(tile_load,    tile, Load,    producer, none, 4)                                                 \
    JOB(tile_wait,    tile, Wait,    consumer, tile_load, 4)                                            \
    JOB(tile_compute, tile, Compute, consumer, none, 4, musetrace::abi::kPayload)                       \
    JOB(released,     tile, Sync,    consumer, none, 1, musetrace::abi::kInstant)                       \
    JOB(tile_life,    tile, Compute, tiles,    none)
// clang-format on
MUSETRACE_JOB_TABLE(GemmJobs, "gemm", 5, GEMM_ROLES, GEMM_JOBS);

__global__ void gemm(float* data, int tiles, int other_job, void* region) {
    musetrace::KernelStamps<GemmJobs> kernel(region);
    if (threadIdx.x == 0) MUSETRACE_BEGIN(kernel, GemmJobs::tile_life);
    if (threadIdx.x < 32) {
        auto stamps = kernel.role<GemmJobs::producer>();
        for (int i = 0; i < tiles; ++i) {
            MUSETRACE_BEGIN(stamps, GemmJobs::tile_load, i);
            data[i * 32 + threadIdx.x] += 1.0f;
            MUSETRACE_END(stamps, GemmJobs::tile_load, i);
        }
        MUSETRACE_FLUSH(stamps);
    } else {
        auto stamps = kernel.role<GemmJobs::consumer>();
        MUSETRACE_BEGIN(stamps, GemmJobs::tile_wait);
        data[threadIdx.x] *= 2.0f;
        MUSETRACE_END(stamps, GemmJobs::tile_wait);
        MUSETRACE_INSTANT(stamps, GemmJobs::released);
        MUSETRACE_BEGIN(stamps, GemmJobs::tile_compute);
        data[threadIdx.x + 4096] *= 3.0f;
        MUSETRACE_END(stamps, GemmJobs::tile_compute);
        MUSETRACE_PAYLOAD(stamps, GemmJobs::tile_compute, tiles);
#if !defined(MUSETRACE_NO_STAMPS)
        stamps.begin(other_job, tiles);
        stamps.end(other_job, tiles);
#endif
        MUSETRACE_FLUSH(stamps);
    }
    if (threadIdx.x == 0) MUSETRACE_END(kernel, GemmJobs::tile_life);
}
