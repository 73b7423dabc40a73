// What the entries of the kernels have in common: a block's set-up, and one warp of each role.
#pragma once

#include "megakernel/block.cuh"
#include "megakernel/launch_order.cuh"
#include "megakernel/layer_kernel.cuh"

namespace musetrace::megakernel {

// 128 x 104 + 256 x 200 registers are those of 384 x 168.
inline constexpr std::uint32_t kSingleWarpRegisters = 104;
inline constexpr std::uint32_t kGroupRegisters = 200;

// By all threads of the block.
template <StampMode kMode, class Table, class Params>
__device__ __forceinline__ void set_stamps(BlockSlots<Table>& stamps, const Params& params, std::uint32_t rank,
                                           std::uint32_t block) {
    if constexpr (kMode != StampMode::kOff) {
        const abi::StampLayout layout{params.shape.blocks, params.stamp_row.slots, abi::slot_bytes(kMode)};
        const StampRegion region{params.stamps == nullptr ? nullptr : params.stamps + rank * layout.region_bytes(),
                                 layout};
        if (threadIdx.x < Table::kWarpsPerBlock) stamps.set(region, block, threadIdx.x, params.stamp_row.first);
    }
}

// By one thread of the block, behind the launch in front: the epoch is in the state, which is written until then.
template <StampMode kMode, class Table, class Params>
__device__ __forceinline__ void stamp_launch(const BlockSlots<Table>& stamps, const Params& params) {
    if constexpr (kMode != StampMode::kOff) {
        stamp_block(stamps.header, params.epoch + params.state->epoch, detail::sm_id());
    }
}

// A launch whose blocks have three roles, the body of its kernel. Kernel has:
//   Params, Shared, Warp<StampMode, kDelays, kStampRegisters>
//   kGroupStampRegisters   of warps 4 to 11; the others need one
//   reported_rank(params)  the number of the first rank here in a wait report
//   loader(w)              warp 0: it does not wait for the launch in front
//   carrier(w)             warps 1 to 3
//   prefetch(w), group(w)  warps 4 to 11, while the launch in front may still run, and behind it
template <class Kernel, LayerBuild kBuild>
struct BlockEntry {
    using Params = typename Kernel::Params;
    using Shared = typename Kernel::Shared;
    static constexpr StampMode kMode = stamp_mode(kBuild);
    static constexpr bool kDelays = kBuild == LayerBuild::kDelays;

    static __device__ __forceinline__ void run(const Params& params, Shared& shared) {
        set_up(params, shared);
        __syncthreads();
        const std::uint32_t warp = __shfl_sync(kAllLanes, threadIdx.x / kLanes, 0);
        if (params.programmatic) let_next_launch_start();
        if (warp < kFirstGroupWarp) {
            sync::give_registers_back<kSingleWarpRegisters>();
            run_single(make_warp<1>(params, shared, warp));
        } else {
            sync::take_registers<kGroupRegisters>();
            run_group(make_warp<Kernel::kGroupStampRegisters>(params, shared, warp));
        }
    }

  private:
    static __device__ __forceinline__ void set_up(const Params& params, Shared& shared) {
        const std::uint32_t rank = blockIdx.x / params.shape.blocks, block = blockIdx.x % params.shape.blocks;
        if (threadIdx.x == 0) {
            shared.init();
            shared.waiter = {params.report, params.budget_ns, Kernel::reported_rank(params) + rank, block, 0,
                             params.abort};
        }
        set_stamps<kMode>(shared.stamps, params, rank, block);
        if (threadIdx.x == kLanes) {
            shared.shares = params.shares[block];
            shared.delay_seed = params.delay_seed * 0x9E3779B1u ^ blockIdx.x * 0x85EBCA77u;
        }
        constexpr std::uint32_t kWords = sizeof(shared.rank) / sizeof(std::uint64_t);
        static_assert(sizeof(shared.rank) % sizeof(std::uint64_t) == 0 && kWords <= kBlockThreads);
        if (threadIdx.x < kWords) {
            reinterpret_cast<std::uint64_t*>(&shared.rank)[threadIdx.x] =
                reinterpret_cast<const std::uint64_t*>(&params.rank[rank])[threadIdx.x];
        }
    }

    template <std::uint32_t kStampRegisters>
    using Warp = typename Kernel::template Warp<kMode, kDelays, kStampRegisters>;

    template <std::uint32_t kStampRegisters>
    static __device__ __forceinline__ Warp<kStampRegisters> make_warp(const Params& params, Shared& shared,
                                                                      std::uint32_t warp) {
        return {{shared, shared.waiter, {shared.stamps, shared.waiter.block, warp}, warp, sync::lane_id()},
                params,
                shared.rank};
    }

    template <class W>
    static __device__ __forceinline__ void run_single(W w) {
        if (w.warp == 0) {
            Kernel::loader(w);
        } else {
            wait_for_launch_before();
            if (w.warp == kSenderWarp && w.lane == 0) stamp_launch<kMode>(w.shared.stamps, w.params);
            Kernel::carrier(w);
        }
        w.stamps.flush();
    }

    template <class W>
    static __device__ __forceinline__ void run_group(W w) {
        Kernel::prefetch(w);
        wait_for_launch_before();
        Kernel::group(w);
        w.stamps.flush();
    }
};

}  // namespace musetrace::megakernel
