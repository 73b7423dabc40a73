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

// kDelays is kOff here: nobody waits for anybody.
template <LayerBuild kBuild>
__global__ void __launch_bounds__(kBlockThreads, 1) muse_step(const __grid_constant__ StepParams params) {
    constexpr StampMode kMode = stamp_mode(kBuild);
    extern __shared__ __align__(128) char bytes[];
    SharedMemory& shared = *reinterpret_cast<SharedMemory*>(bytes);
    const std::uint32_t rank = blockIdx.x / params.shape.blocks, block = blockIdx.x % params.shape.blocks;
    if (threadIdx.x == 0) shared.waiter = {nullptr, 0, rank, block, 0, nullptr};
    set_stamps<kMode>(shared.stamps, params, rank, block);
    __syncthreads();
    const std::uint32_t warp = __shfl_sync(kAllLanes, threadIdx.x / kLanes, 0);
    if (params.programmatic) let_next_launch_start();
    Warp<kMode> w{{shared, shared.waiter, {shared.stamps, block, warp}, warp, sync::lane_id()}, params, rank};
    wait_for_launch_before();
    if (threadIdx.x == 0) stamp_launch<kMode>(shared.stamps, params);
    run(w);
    w.stamps.flush();
}

}  // namespace musetrace::megakernel::step
