// C = A * B^T on tensor cores: one warp loads tiles into a ring in shared memory, four warps multiply what it loaded.
#include <cooperative_groups.h>

#include <cuda/pipeline>

#include "gemm_jobs.h"
#include "musetrace/abi/job_table_json.h"
#include "tensor_core.cuh"

MUSETRACE_EXPORT_JOB_TABLE(GemmJobs);

using Element = __nv_bfloat16;
using Pipeline = cuda::pipeline<cuda::thread_scope_block>;
constexpr int kTile = 128, kDepth = 64, kStages = 4, kThreads = 160;
constexpr int kRow = kDepth + 8;  // padded, so that the rows of a matrix lie in different banks
struct Ring {
    alignas(128) Element a[kStages][kTile * kRow], b[kStages][kTile * kRow];
    cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
};

// kTile rows of kDepth elements out of rows of k, 16 bytes a lane and turn.
__device__ void load_tile(Element* to, const Element* from, int k, Pipeline& pipeline) {
    for (int turn = 0; turn < kTile * kDepth / 8 / 32; ++turn) {
        const int chunk = turn * 32 + threadIdx.x, row = chunk / (kDepth / 8), column = chunk % (kDepth / 8) * 8;
        cuda::memcpy_async(to + row * kRow + column, from + static_cast<size_t>(row) * k + column,
                           cuda::aligned_size_t<16>(16), pipeline);
    }
}

__global__ void __launch_bounds__(kThreads)
    gemm(const Element* a, const Element* b, float* c, int n, int k, void* region) {
    musetrace::KernelStamps<GemmJobs> kernel(region);
    extern __shared__ char memory[];
    Ring& ring = *reinterpret_cast<Ring*>(memory);
    const int warp = threadIdx.x / 32;
    const auto part = warp == 0 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipeline = cuda::make_pipeline(cooperative_groups::this_thread_block(), &ring.state, part);
    const size_t row = blockIdx.y * kTile, column = blockIdx.x * kTile;
    if (warp == 0) {
        auto stamps = kernel.role<GemmJobs::producer>();
        for (int i = 0; i < k / kDepth; ++i) {
            MUSETRACE_BEGIN(stamps, GemmJobs::wait_for_stage, i);
            pipeline.producer_acquire();
            MUSETRACE_NEXT(stamps, GemmJobs::wait_for_stage, GemmJobs::load, i);
            load_tile(ring.a[i % kStages], a + row * k + i * kDepth, k, pipeline);
            load_tile(ring.b[i % kStages], b + column * k + i * kDepth, k, pipeline);
            pipeline.producer_commit();
            MUSETRACE_END(stamps, GemmJobs::load, i);
            MUSETRACE_PAYLOAD(stamps, GemmJobs::load, 2 * kTile * kDepth * sizeof(Element), i);
        }
        MUSETRACE_FLUSH(stamps);
    } else {
        auto stamps = kernel.role<GemmJobs::consumer>();
        const int first_row = (warp - 1) / 2 * 64, first_column = (warp - 1) % 2 * 64;
        float sum[4][8][4] = {};
        for (int i = 0; i < k / kDepth; ++i) {
            const Element *stage_a = ring.a[i % kStages], *stage_b = ring.b[i % kStages];
            MUSETRACE_BEGIN(stamps, GemmJobs::wait_for_tiles, i);
            pipeline.consumer_wait();
            MUSETRACE_NEXT(stamps, GemmJobs::wait_for_tiles, GemmJobs::multiply, i);
            multiply_tile<kDepth, kRow>(sum, stage_a + first_row * kRow, stage_b + first_column * kRow);
            pipeline.consumer_release();
            MUSETRACE_END(stamps, GemmJobs::multiply, i);
        }
        MUSETRACE_BEGIN(stamps, GemmJobs::store);
        store_tile(c + (row + first_row) * n + column + first_column, n, sum);
        MUSETRACE_END(stamps, GemmJobs::store);
        MUSETRACE_FLUSH(stamps);
    }
}

// For A [m, k], B [n, k] and C [m, n], m and n multiples of 128, k of 64. Returns CUDA's error; 0 is none.
extern "C" int launch_gemm(const Element* a, const Element* b, float* c, int m, int n, int k, void* region,
                           cudaStream_t stream) {
    cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    gemm<<<dim3(n / kTile, m / kTile), kThreads, sizeof(Ring), stream>>>(a, b, c, n, k, region);
    return cudaGetLastError();
}
