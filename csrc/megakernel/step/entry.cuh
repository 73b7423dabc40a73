// The kernel's entry: what stands between the draft and the verify pass, and behind that.
#pragma once

#include "megakernel/block_entry.cuh"
#include "megakernel/step/accept.cuh"
#include "megakernel/step/kernel.cuh"
#include "megakernel/step/rows.cuh"
#include "megakernel/step/tree.cuh"

namespace musetrace::megakernel::step {

template <class W>
__device__ __forceinline__ void run(W& w) {
    switch (w.params.kind) {
        case StepKind::kTree:
            return make_tree(w);
        case StepKind::kEmbed:
            return w.template job<MuseStep::embed_rows>([&] { embed_rows(w); });
        case StepKind::kAccept:
            return accept(w);
        default:
            return keep_rows(w);
    }
}

template <LayerBuild kBuild>
__global__ void __launch_bounds__(kBlockThreads, 1) muse_step(const __grid_constant__ StepParams params) {
    constexpr StampMode kMode = stamp_mode(kBuild);
    constexpr bool kDelays = kBuild == LayerBuild::kDelays;
    extern __shared__ __align__(128) char bytes[];
    SharedMemory& shared = *reinterpret_cast<SharedMemory*>(bytes);
    const std::uint32_t rank = blockIdx.x / params.shape.blocks, block = blockIdx.x % params.shape.blocks;
    if (threadIdx.x == 0) {
        const std::uint32_t reported = kReportedRank + params.first_rank + rank;
        shared.waiter = {params.report, params.budget_ns, reported, block, 0, params.abort};
        shared.delay_seed = params.delay_seed * 0x9E3779B1u ^ blockIdx.x * 0x85EBCA77u;
    }
    if (threadIdx.x < kWarps) shared.received[threadIdx.x] = false;
    set_stamps<kMode>(shared.stamps, params, rank, block);
    __syncthreads();
    const std::uint32_t warp = __shfl_sync(kAllLanes, threadIdx.x / kLanes, 0);
    if (params.programmatic) let_next_launch_start();
    Warp<kMode, kDelays> w{{shared, shared.waiter, {shared.stamps, block, warp}, warp, sync::lane_id()}, params, rank};
    wait_for_launch_before();
    if (threadIdx.x == 0) stamp_launch<kMode>(shared.stamps, params);
    run(w);
    w.stamps.flush();
}

}  // namespace musetrace::megakernel::step
