// A kernel of somebody else, played by host code: block after block and warp after warp, through the public header.
// tests/unit/test_kernel_stamps.py builds it, with -DMUSETRACE_STAMPS=0, 1 or 2, and reads what it stamped.
#include "musetrace/abi/job_table_json.h"
#include "musetrace/stamp.cuh"

// clang-format off
#define GEMM_ROLES(ROLE)                                \
    ROLE(producer, 0, 0, 1u << 0)                       \
    ROLE(consumer, 1, 4, 1u << 1 | 1u << 3)             \
    ROLE(tracer,   5, 5, 1u << 5)                       \
    ROLE(tiles,    0, 5, 0, musetrace::abi::kBlock)
#define GEMM_JOBS(JOB)                                                                                  \
    JOB(tile_load,    tile, Load,    producer, none, 3)                                                 \
    JOB(tile_wait,    tile, Wait,    consumer, tile_load, 3, musetrace::abi::kFromBlock)                \
    JOB(tile_compute, tile, Compute, consumer, none, 3, musetrace::abi::kPayload)                       \
    JOB(released,     tile, Sync,    consumer, none, 1, musetrace::abi::kInstant)                       \
    JOB(trace,        path, Compute, tracer,   none, 60)                                                \
    JOB(tile_life,    tile, Compute, tiles,    none, 2)
// clang-format on
MUSETRACE_JOB_TABLE(GemmJobs, "gemm", 6, GEMM_ROLES, GEMM_JOBS);
MUSETRACE_EXPORT_JOB_TABLE(GemmJobs);

namespace {

void produce(const musetrace::KernelStamps<GemmJobs>& kernel, std::uint32_t tiles) {
    auto stamps = kernel.role<GemmJobs::producer>();
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
        MUSETRACE_BEGIN(stamps, GemmJobs::tile_load, tile);
        MUSETRACE_END(stamps, GemmJobs::tile_load, tile);
    }
    MUSETRACE_FLUSH(stamps);
}

void consume(const musetrace::KernelStamps<GemmJobs>& kernel, std::uint32_t tiles, std::uint32_t extra_job) {
    auto stamps = kernel.role<GemmJobs::consumer>();
    MUSETRACE_INSTANT(stamps, GemmJobs::released);
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
        MUSETRACE_BEGIN(stamps, GemmJobs::tile_wait, tile);
        MUSETRACE_END(stamps, GemmJobs::tile_wait, tile);
        MUSETRACE_BEGIN(stamps, GemmJobs::tile_compute, tile);
        MUSETRACE_PAYLOAD(stamps, GemmJobs::tile_compute, 1000 + tile, tile);
        MUSETRACE_END(stamps, GemmJobs::tile_compute, tile);
    }
    if (extra_job != GemmJobs::none) {
        stamps.begin(extra_job, tiles);
        stamps.end(extra_job, tiles);
    }
    MUSETRACE_FLUSH(stamps);
}

// More spans than are kept in registers.
void trace(const musetrace::KernelStamps<GemmJobs>& kernel, std::uint32_t spans) {
    auto stamps = kernel.role<GemmJobs::tracer>();
    for (std::uint32_t span = 0; span < spans; ++span) {
        MUSETRACE_BEGIN(stamps, GemmJobs::trace, span);
        MUSETRACE_END(stamps, GemmJobs::trace, span);
    }
    MUSETRACE_FLUSH(stamps);
}

}  // namespace

// `extra_job` is stamped by its number, in iteration `tiles`; 0xFFFF for none.
extern "C" void run_gemm(void* region, std::uint32_t blocks, std::uint32_t tiles, std::uint32_t extra_job) {
    for (std::uint32_t block = 0; block < blocks; ++block) {
        for (std::uint32_t warp = 0; warp < GemmJobs::kWarpsPerBlock; ++warp) {
            const musetrace::KernelStamps<GemmJobs> kernel(region, block, warp * 32);
            if (warp == 0) {
                MUSETRACE_BEGIN(kernel, GemmJobs::tile_life, tiles - 1);
                produce(kernel, tiles);
            } else if (warp == 5) {
                trace(kernel, 13 * tiles);
            } else {
                consume(kernel, tiles, extra_job);
            }
            if (warp + 1 == GemmJobs::kWarpsPerBlock) MUSETRACE_END(kernel, GemmJobs::tile_life, tiles - 1);
        }
    }
}
