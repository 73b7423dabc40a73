// The layer kernel's entry: a block's shared memory, its stamps, and one warp of each role.
#pragma once

#include "megakernel/launch_order.cuh"
#include "megakernel/layer.cuh"
#include "megakernel/layer_kernel.cuh"

namespace musetrace::megakernel {

// 128 x 104 + 256 x 200 registers are those of 384 x 168.
inline constexpr std::uint32_t kSingleWarpRegisters = 104;
inline constexpr std::uint32_t kGroupRegisters = 200;

// By all threads of the block.
template <StampMode kMode>
__device__ __forceinline__ void set_stamps(SharedMemory& shared, char* stamps, const StampRow& row, std::uint32_t rank,
                                           std::uint32_t block, std::uint32_t blocks) {
    if constexpr (kMode != StampMode::kOff) {
        const abi::StampLayout layout{blocks, row.slots, abi::slot_bytes(kMode)};
        const StampRegion region{stamps == nullptr ? nullptr : stamps + rank * layout.region_bytes(), layout};
        if (threadIdx.x < MuseHopper::kWarpsPerBlock) shared.stamps.set(region, block, threadIdx.x, row.first);
    }
}

template <StampMode kMode, bool kDelays, std::uint32_t kStampRegisters>
__device__ __forceinline__ Warp<kMode, kDelays, kStampRegisters> make_warp(const LayerParams& params,
                                                                           SharedMemory& shared, std::uint32_t warp) {
    return {{shared, shared.waiter, {shared.stamps, shared.waiter.block, warp}, warp, sync::lane_id()},
            params,
            shared.rank};
}

// Warps 0 to 3. The loader does not wait for the launch before.
template <StampMode kMode, bool kDelays>
__device__ __forceinline__ void run_single(const LayerParams& params, SharedMemory& shared, std::uint32_t warp) {
    auto w = make_warp<kMode, kDelays, 1>(params, shared, warp);
    if (warp == 0) {
        loader(w);
    } else {
        wait_for_launch_before();
        if constexpr (kMode != StampMode::kOff) {
            if (warp == kSenderWarp && w.lane == 0) {
                stamp_block(shared.stamps.header, params.epoch + params.state->epoch, detail::sm_id());
            }
        }
        carrier(w);
    }
    w.stamps.flush();
}

template <LayerBuild kBuild>
__global__ void __launch_bounds__(kBlockThreads, 1) muse_layer(const __grid_constant__ LayerParams params) {
    constexpr StampMode kMode = stamp_mode(kBuild);
    constexpr bool kDelays = kBuild == LayerBuild::kDelays;
    extern __shared__ __align__(128) char bytes[];
    SharedMemory& shared = *reinterpret_cast<SharedMemory*>(bytes);
    const std::uint32_t rank = blockIdx.x / params.shape.blocks, block = blockIdx.x % params.shape.blocks;
    if (threadIdx.x == 0) {
        shared.init();
        shared.waiter = {params.report, params.budget_ns, params.first_rank + rank, block, 0, params.abort};
    }
    set_stamps<kMode>(shared, params.stamps, params.stamp_row, rank, block, params.shape.blocks);
    if (threadIdx.x == kLanes) {
        shared.shares = params.shares[block];
        shared.delay_seed = params.delay_seed * 0x9E3779B1u ^ blockIdx.x * 0x85EBCA77u;
    }
    constexpr std::uint32_t kWords = sizeof(RankParams) / sizeof(std::uint64_t);
    static_assert(sizeof(RankParams) % sizeof(std::uint64_t) == 0 && kWords <= kBlockThreads);
    if (threadIdx.x < kWords) {
        reinterpret_cast<std::uint64_t*>(&shared.rank)[threadIdx.x] =
            reinterpret_cast<const std::uint64_t*>(&params.rank[rank])[threadIdx.x];
    }
    __syncthreads();
    const std::uint32_t warp = __shfl_sync(kAllLanes, threadIdx.x / kLanes, 0);
    if (params.programmatic) let_next_launch_start();
    if (warp < kFirstGroupWarp) {
        sync::give_registers_back<kSingleWarpRegisters>();
        run_single<kMode, kDelays>(params, shared, warp);
    } else {
        sync::take_registers<kGroupRegisters>();
        auto w = make_warp<kMode, kDelays, kByPage>(params, shared, warp);
        if (params.kind == LaunchKind::kLayer) {
            w.template job<MuseHopper::attention_prefetch>([&] { ops::Attention::prefetch(w); });
        }
        wait_for_launch_before();
        group(w);
        w.stamps.flush();
    }
}

template <LayerBuild kBuild>
LayerKernel layer_kernel() {
    return muse_layer<kBuild>;
}

}  // namespace musetrace::megakernel
