// A warp that reads global memory through shared memory and keeps a given number of bytes on their way: the load under
// which a megakernel's other warps work.
#pragma once

#include <cstdint>

#include "probe/clocks.cuh"
#include "probe/launch.cuh"
#include "sync/gpu_arch.cuh"
#include "sync/ring_cursor.h"

namespace musetrace::probe {

inline constexpr std::uint32_t kPieceBytes = 16 * 1024;
inline constexpr std::uint32_t kMostPieces = 12;

// Lies in shared memory, as a whole.
struct alignas(128) PieceRing {
    char bytes[kMostPieces][kPieceBytes];
    sync::GpuBarrier landed[kMostPieces];
    sync::Waiter waiter;
    std::uint32_t stop;  // to the warp that streams, see stream_until_measured()

    // One thread; then __syncthreads().
    __device__ __forceinline__ void init(abi::WaitReport* report) {
        for (sync::GpuBarrier& barrier : landed) barrier.init(1);
        sync::GpuBarrier::fence_init();
        waiter = waiter_of(report);
        stop = 0;
    }
};
static_assert(sizeof(PieceRing) <= 200'000, "leaves room for samples");

// One lane. Other than GpuBarrier::copy it leaves the eviction to L2: that of a weight stream would keep what it read
// first, and a probe that reads the same again would find it there.
__device__ __forceinline__ void copy_piece(sync::GpuBarrier& landed, void* shared, const char* global) {
    landed.arrive_expecting(kPieceBytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(kPieceBytes), "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(&landed)))
                 : "memory");
}

// The warp: keeps `in_flight` pieces (1 to kMostPieces) on their way until next() gives null; returns when all have
// landed, since a copy on its way writes into the shared memory of the SM's next block. A stream that follows on the
// same ring goes on with the cursor, and has as many in flight.
template <class Next>
__device__ __forceinline__ void stream_pieces(PieceRing& ring, sync::RingCursor& cursor, std::uint32_t in_flight,
                                              Next next) {
#pragma unroll 1
    for (const char* piece; (piece = next()) != nullptr;) {
        // A fresh barrier passes at once: the phase before its first.
        ring.landed[cursor.stage].wait_parity(ring.waiter, kCopyLands, cursor.parity ^ 1u);
        if (sync::lane_id() == 0) copy_piece(ring.landed[cursor.stage], ring.bytes[cursor.stage], piece);
        __syncwarp();
        cursor.advance(in_flight);
    }
    sync::RingCursor landing = cursor;
#pragma unroll 1
    for (std::uint32_t i = 0; i < in_flight; ++i) {
        ring.landed[landing.stage].wait_parity(ring.waiter, kCopyLands, landing.parity ^ 1u);
        landing.advance(in_flight);
    }
}

// What all blocks read while some of them measure.
struct Background {
    const char* data;
    std::uint64_t pieces;
    std::uint32_t in_flight;  // pieces of each block; 0: nothing is read
    std::uint32_t measuring;  // warps of the grid that will say finished_measuring()
    std::uint32_t* finished;  // one zero word
};

inline constexpr std::uint32_t kBackgroundThreads = 96;  // a warp that measures, one that streams, one that watches
// From a launch's begin until its stream is steady.
inline constexpr std::uint64_t kWarmUpNs = 20'000;

// The warp that measures, at its end.
__device__ __forceinline__ void finished_measuring(const Background& background) {
    __syncwarp();
    if (sync::lane_id() == 0) atomicAdd(background.finished, 1u);
}

// Warps 1 and 2. The stream never looks at global memory: that would take as long as what it loads.
__device__ __forceinline__ void stream_until_measured(PieceRing& ring, const Background& background) {
    if (background.in_flight == 0) return;
    volatile std::uint32_t& stop = ring.stop;
    if (threadIdx.x / abi::kLanesPerWarp == 2) {
        const auto poll = [&] { return std::uint64_t{sync::GpuArch::load_relaxed(background.finished)}; };
        sync::wait<sync::GpuArch, 2>(ring.waiter, kMeasured, background.measuring, poll,
                                     [](std::uint32_t) { __nanosleep(1000); });
        stop = 1;
        return;
    }
    // Should the watching warp give up, it says nothing.
    const std::uint64_t deadline_ns = stamp_clock_ns() + 4 * kBudgetNs;
    std::uint64_t piece = blockIdx.x;
    sync::RingCursor cursor;
    stream_pieces(ring, cursor, background.in_flight, [&]() -> const char* {
        if (__any_sync(sync::kAllLanes, stop != 0 || stamp_clock_ns() > deadline_ns)) return nullptr;
        const char* next = background.data + piece * kPieceBytes;
        piece += gridDim.x;
        if (piece >= background.pieces) piece -= background.pieces;
        return next;
    });
}

}  // namespace musetrace::probe
