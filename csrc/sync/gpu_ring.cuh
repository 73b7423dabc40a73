// The weight ring of a block on the GPU. One warp has its lane 0 issue a bulk copy for each stage, the consumer warps
// empty the stages. Same order on both sides for the whole launch, across op boundaries (ring.h is the host's twin).
//
// Reuse of a stage: the producer fills it again only after every consumer warp arrived on its empty barrier, and a warp
// arrives after the loads of all its lanes.
#pragma once

#include <cstdint>

#include "sync/gpu_arch.cuh"
#include "sync/ring_cursor.h"

namespace musetrace::sync {

// Bytes on their way per SM that give all the bandwidth (4.57 TB/s on an H200); with 128 KB a hop between SMs takes
// 1.5 us instead of 0.65, for nothing.
inline constexpr std::uint32_t kInFlightBytes = 48 * 1024;

// Lies in shared memory, as a whole.
template <std::uint32_t kStages, std::uint32_t kStageBytes, std::uint32_t kConsumers>
struct alignas(128) GpuRing {
    static_assert(kStageBytes % 128 == 0 && kStages >= 2);

    char bytes[kStages][kStageBytes];
    GpuBarrier full[kStages];
    GpuBarrier empty[kStages];
    std::uint32_t filled_bytes[kStages];  // the producer's own

    // One thread; then __syncthreads().
    __device__ __forceinline__ void init() {
        for (std::uint32_t stage = 0; stage < kStages; ++stage) {
            full[stage].init(1);
            // Per consumer warp: one arrival for all of them would free the stage under the slower ones.
            empty[stage].init_for_warps(kConsumers);
        }
        GpuBarrier::fence_init();
    }

    // Consumers: the warp.
    __device__ __forceinline__ const char* wait_full(const Waiter& waiter, std::uint32_t site,
                                                     const RingCursor& cursor) {
        full[cursor.stage].wait_parity(waiter, site, cursor.parity);
        return bytes[cursor.stage];
    }
    // A look, without waiting; then the same as wait_full().
    __device__ __forceinline__ bool is_full(const RingCursor& cursor) const {
        return full[cursor.stage].has_ended(cursor.parity);
    }
    __device__ __forceinline__ void mark_empty(RingCursor& cursor) {
        empty[cursor.stage].arrive_as_warp(lane_id());
        cursor.advance(kStages);
    }

    // The producer warp's end of the ring.
    class Producer {
      public:
        __device__ __forceinline__ Producer(GpuRing& ring, std::uint32_t limit_bytes)
            : ring_(ring), limit_bytes_(limit_bytes) {}

        // A stage is issued only while no more than this are on their way (so that and a stage at most).
        __device__ __forceinline__ void set_limit(std::uint32_t limit_bytes) { limit_bytes_ = limit_bytes; }

        // The warp: `bytes` of global memory into the next stage, once it is empty. Returns when the copy is issued.
        __device__ __forceinline__ void fill(const Waiter& waiter, std::uint32_t site, const char* source,
                                             std::uint32_t bytes) {
            // A fresh ring is empty: waiting for the phase before the first passes at once.
            ring_.empty[next_.stage].wait_parity(waiter, site, next_.parity ^ 1u);
            // A whole ring on its way would take the landing cursor round: its parity would then mean another phase.
            while (in_flight_bytes_ > limit_bytes_ || in_flight_stages_ == kStages) wait_landed(waiter, site);
            if (lane_id() == 0) {
                ring_.filled_bytes[next_.stage] = bytes;
                ring_.full[next_.stage].arrive_expecting(bytes);
                ring_.full[next_.stage].copy(ring_.bytes[next_.stage], source, bytes);
            }
            __syncwarp();
            in_flight_bytes_ += bytes;
            ++in_flight_stages_;
            next_.advance(kStages);
        }

      private:
        // The oldest stage on its way.
        __device__ __forceinline__ void wait_landed(const Waiter& waiter, std::uint32_t site) {
            ring_.full[landing_.stage].wait_parity(waiter, site, landing_.parity);
            in_flight_bytes_ -= ring_.filled_bytes[landing_.stage];
            --in_flight_stages_;
            landing_.advance(kStages);
        }

        GpuRing& ring_;
        std::uint32_t limit_bytes_;
        RingCursor next_{};
        RingCursor landing_{};
        std::uint32_t in_flight_bytes_ = 0;
        std::uint32_t in_flight_stages_ = 0;
    };
};

}  // namespace musetrace::sync
