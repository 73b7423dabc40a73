// What the dense products have in common: a warp that loads, eight that multiply, and how a kernel begins.
//
// The loader fills the ring with weights at once; the tokens' operand follows behind the kernels before. The inner loop
// is the megakernel's.
#pragma once

#include "baseline/launch.cuh"
#include "megakernel/ops/dense.cuh"

namespace musetrace::baseline::ops {

using megakernel::Bf16Unit;
using megakernel::MuseHopper;
using megakernel::ops::multiply_unit;
using megakernel::ops::reduce_unit;
using megakernel::ops::UnitSums;

inline constexpr std::uint32_t kDenseThreads = kGroupThreads + kLanes;
inline constexpr std::uint32_t kDenseStageBytes = 16 * 1024;

// The tokens' operand lies behind it: its size is the launch's.
template <std::uint32_t kRingStages>
struct DenseShared {
    static constexpr std::uint32_t kStages = kRingStages;
    using Ring = sync::GpuRing<kRingStages, kDenseStageBytes, kGroupWarps>;

    Ring ring;
    alignas(128) float sums[2][megakernel::kTileFloats];
    sync::GpuBarrier x_full;
    sync::GpuBarrier group;
    sync::Waiter waiters[kGroupWarps + 1];  // here, and not in each thread's local memory

    __device__ __forceinline__ char* x() { return reinterpret_cast<char*>(this + 1); }
    // One thread; then __syncthreads().
    __device__ __forceinline__ void init() {
        x_full.init(1);
        group.init(kGroupWarps);
        ring.init();  // with the fence
    }
};

// One warp of a dense kernel, with the members that the megakernel's loops use.
template <class Shared>
struct DenseWarp {
    Shared& shared;
    const ChainParams& params;
    const sync::Waiter& waiter;
    std::uint32_t warp;
    std::uint32_t lane;
    sync::RingCursor cursor{};
    std::uint32_t group_parity = 0;
    std::uint32_t scratch_turn = 0;

    __device__ __forceinline__ bool loads() const { return warp == kGroupWarps; }
    __device__ __forceinline__ std::uint32_t group_warp() const { return warp; }
    __device__ __forceinline__ std::uint32_t group_thread() const { return threadIdx.x; }
    // Thread 16 token + place has rows 2 pair and 2 pair + 1 of a unit's sums.
    __device__ __forceinline__ std::uint32_t token() const { return threadIdx.x / kChunkWords; }
    __device__ __forceinline__ std::uint32_t pair() const { return pair_place(threadIdx.x % kChunkWords); }

    // As WarpBase::scratch of the megakernel.
    __device__ __forceinline__ float* scratch() {
        scratch_turn ^= 1u;
        return shared.sums[scratch_turn];
    }
    __device__ __forceinline__ void meet(std::uint32_t site) {
        __syncwarp();
        if (lane == 0) shared.group.arrive();
        shared.group.wait_parity(waiter, site, group_parity);
        group_parity ^= 1u;
    }
};

template <class Shared>
__device__ __forceinline__ DenseWarp<Shared> begin_dense(const ChainParams& params, char* bytes) {
    auto& shared = *reinterpret_cast<Shared*>(bytes);
    if (threadIdx.x == 0) shared.init();
    const std::uint32_t warp = __shfl_sync(kAllLanes, threadIdx.x / kLanes, 0);
    if (sync::lane_id() == 0) shared.waiters[warp] = waiter_of(params, warp);
    __syncthreads();
    let_next_kernel_start();
    return {shared, params, shared.waiters[warp], warp, sync::lane_id()};
}

constexpr std::uint32_t x_bytes(std::uint32_t k) { return k / kChunkK * kTokens * kChunkBytes; }

struct Weights {
    const char* source;
    std::uint32_t bytes;
};

// Loader: `count` fills of the ring, fill i brings weights(i); and `bytes` of x, as soon as they are there.
template <class Shared, class Source>
__device__ __forceinline__ void load_dense(DenseWarp<Shared>& w, std::uint32_t site, std::uint32_t count,
                                           Source weights, const char* x, std::uint32_t bytes) {
    typename Shared::Ring::Producer ring(w.shared.ring, kInFlightBytes);
    // Nobody empties the ring before x has come.
    const std::uint32_t early = min(count, Shared::kStages);
#pragma unroll 1
    for (std::uint32_t i = 0; i < early; ++i) {
        const Weights next = weights(i);
        ring.fill(w.waiter, site, next.source, next.bytes);
    }
    wait_for_kernels_before();
    if (w.lane == 0) copy_activations(w.shared.x_full, w.shared.x(), x, bytes);
    __syncwarp();
#pragma unroll 1
    for (std::uint32_t i = early; i < count; ++i) {
        const Weights next = weights(i);
        ring.fill(w.waiter, site, next.source, next.bytes);
    }
}

// Those of tiles [tiles), K slice `slice` of `slices`, tile by tile.
struct TileStages {
    const char* first;
    std::uint32_t stages;     // of a tile
    std::uint32_t per_slice;  // of a tile, this slice's
    std::uint32_t bytes;

    __device__ __forceinline__ TileStages(const char* matrix, std::uint32_t k, Share tiles, std::uint32_t slice,
                                          std::uint32_t slices)
        : stages(k / megakernel::stage_k(k)),
          per_slice(stages / slices),
          bytes(Bf16Unit::bytes(megakernel::stage_k(k))) {
        first = matrix + (std::size_t{tiles.begin} * stages + std::size_t{slice} * per_slice) * bytes;
    }
    __device__ __forceinline__ Weights operator()(std::uint32_t i) const {
        return {first + (std::size_t{i / per_slice} * stages + i % per_slice) * bytes, bytes};
    }
};

// Group: store(tile, tiles, sums) gets the sums of one or two tiles, every thread those of its rows.
template <class Shared, class Store>
__device__ __forceinline__ void multiply_tiles(DenseWarp<Shared>& w, std::uint32_t site, std::uint32_t k,
                                               std::uint32_t slices, Share range, Store store) {
    const std::uint32_t stage = megakernel::stage_k(k), per_slice = k / stage / slices;
#pragma unroll 1
    for (std::uint32_t tile = range.begin; tile < range.end; tile += 2) {
        const std::uint32_t tiles = min(2u, range.end - tile);
        UnitSums sums;
        multiply_unit(w, site, w.shared.x(), tiles, per_slice, stage, sums);
        store(tile, tiles, reduce_unit(w, site, sums));
    }
}

// Group.
template <class Shared>
__device__ __forceinline__ void wait_for_x(DenseWarp<Shared>& w, std::uint32_t site) {
    wait_for_kernels_before();
    w.shared.x_full.wait_parity(w.waiter, site, 0);
}

}  // namespace musetrace::baseline::ops
