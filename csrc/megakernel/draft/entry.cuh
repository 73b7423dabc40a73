// The draft kernel's entry, and one launch read as a table: which warp does what, in which order.
#pragma once

#include "megakernel/draft/kernel.cuh"
#include "megakernel/draft/ops/attention.cuh"
#include "megakernel/draft/ops/embed.cuh"
#include "megakernel/draft/ops/product.cuh"
#include "megakernel/draft/ops/reset.cuh"
#include "megakernel/draft/ops/rows.cuh"
#include "megakernel/draft/ops/stop.cuh"
#include "megakernel/launch_order.cuh"

namespace musetrace::megakernel::draft {

// 128 x 104 + 256 x 200 registers are those of 384 x 168.
inline constexpr std::uint32_t kSingleWarpRegisters = 104;
inline constexpr std::uint32_t kGroupRegisters = 200;

// Warp 0: all weights of the block, through the ring. Nothing it reads is written by a kernel, so it need not wait for
// the launch before.
template <class W>
__device__ __forceinline__ void loader(W& w) {
    Ring::Producer ring(w.shared.ring, w.params.in_flight_bytes);
#pragma unroll 1
    for (std::uint32_t phase = ops::kFirst; phase != ops::kEnd; phase = ops::next_phase(w, phase)) {
        ops::load_phase(w, ring, static_cast<ops::Phase>(phase));
    }
}

// Warps 1 to 3: warp 3 makes the idle exchange copy empty for the next launch, warps 1 and 2 bring vectors into L1;
// together they send sums to other ranks.
template <class W>
__device__ __forceinline__ void carrier(W& w) {
    if (w.warp == kSenderWarp) {
        w.template job<MuseDraft::exchange_reset>([&] { ops::reset_exchange(w); });
    } else {
        ops::warm(w);
    }
    const std::uint32_t last = w.is_context() ? ops::kFcStop : ops::kStop2;
#pragma unroll 1
    for (std::uint32_t stop = w.is_context() ? ops::kFcStop : ops::kStop1; stop <= last; ++stop) {
        ops::send_units(w, static_cast<ops::Stop>(stop));
    }
}

// Warps 4 to 11: attention, all products, sums and norms. In a context launch the product for q, k and v of the first
// layer, which needs the embedding alone, comes before the stop of fc, and hides it.
template <class W>
__device__ __forceinline__ void group(W& w) {
    if (w.is_context()) {
        ops::embed(w);
    } else {
        ops::Attention::group(w);
    }
#pragma unroll 1
    for (w.phase = ops::kFirst; w.phase != ops::kEnd; w.phase = ops::next_phase(w, w.phase)) {
        w.forget();
        const auto phase = static_cast<ops::Phase>(w.phase);
        ops::multiply(w, phase);
        w.forget();
        if (phase == (w.is_context() ? ops::kQkv : ops::kFirst) || phase == ops::kDown) {
            ops::all_reduce(w, w.is_context() ? ops::kFcStop : phase == ops::kFirst ? ops::kStop1 : ops::kStop2);
        } else if (phase == ops::kGateUp) {
            ops::activate(w);
        } else if (phase == (w.is_context() ? ops::kContext : ops::kQkv)) {
            if (w.is_context()) ops::finish_context(w);
            ops::finish_qkv(w);
        }
    }
}

// By all threads of the block.
template <StampMode kMode>
__device__ __forceinline__ void set_stamps(SharedMemory& shared, char* stamps, const StampRow& row, std::uint32_t rank,
                                           std::uint32_t block, std::uint32_t blocks) {
    if constexpr (kMode != StampMode::kOff) {
        const abi::StampLayout layout{blocks, row.slots, abi::slot_bytes(kMode)};
        const StampRegion region{stamps == nullptr ? nullptr : stamps + rank * layout.region_bytes(), layout};
        if (threadIdx.x < MuseDraft::kWarpsPerBlock) shared.stamps.set(region, block, threadIdx.x, row.first);
    }
}

template <StampMode kMode, bool kDelays, std::uint32_t kStampRegisters>
__device__ __forceinline__ Warp<kMode, kDelays, kStampRegisters> make_warp(const DraftParams& params,
                                                                           SharedMemory& shared, std::uint32_t warp) {
    return {{shared, shared.waiter, {shared.stamps, shared.waiter.block, warp}, warp, sync::lane_id()},
            params,
            shared.rank};
}

// Warps 0 to 3. The loader does not wait for the launch before.
template <StampMode kMode, bool kDelays>
__device__ __forceinline__ void run_single(const DraftParams& params, SharedMemory& shared, std::uint32_t warp) {
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
__global__ void __launch_bounds__(kBlockThreads, 1) muse_draft(const __grid_constant__ DraftParams params) {
    constexpr StampMode kMode = stamp_mode(kBuild);
    constexpr bool kDelays = kBuild == LayerBuild::kDelays;
    extern __shared__ __align__(128) char bytes[];
    SharedMemory& shared = *reinterpret_cast<SharedMemory*>(bytes);
    const std::uint32_t rank = blockIdx.x / params.shape.blocks, block = blockIdx.x % params.shape.blocks;
    if (threadIdx.x == 0) {
        shared.init();
        shared.waiter = {params.report, params.budget_ns, kReportedRank + rank, block, 0, params.abort};
    }
    set_stamps<kMode>(shared, params.stamps, params.stamp_row, rank, block, params.shape.blocks);
    if (threadIdx.x == kLanes) {
        shared.shares = params.shares[block];
        shared.delay_seed = params.delay_seed * 0x9E3779B1u ^ blockIdx.x * 0x85EBCA77u;
    }
    constexpr std::uint32_t kWords = sizeof(DraftRank) / sizeof(std::uint64_t);
    static_assert(sizeof(DraftRank) % sizeof(std::uint64_t) == 0 && kWords <= kBlockThreads);
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
        auto w = make_warp<kMode, kDelays, abi::max_registers<MuseDraft>()>(params, shared, warp);
        if (!w.is_context()) {
            w.template job<MuseDraft::attention_prefetch>([&] { ops::Attention::prefetch(w); });
        }
        wait_for_launch_before();
        group(w);
        w.stamps.flush();
    }
}

template <LayerBuild kBuild>
DraftKernel draft_kernel() {
    return muse_draft<kBuild>;
}

}  // namespace musetrace::megakernel::draft
