// A stream with stamps: what does each way of keeping them add? One loader warp brings 80 stages of 16 KiB through the
// weight ring of the megakernel, eight consumer warps wait for each and give it back; nine warps stamp 166 times in
// all. Compiled twice, the second time without a trace of stamps (MUSETRACE_NO_STAMPS).
#pragma once

#include "musetrace/stamp.cuh"
#include "probe/device_probe.h"
#include "probe/launch.cuh"
#include "sync/gpu_ring.cuh"

namespace musetrace::probe {

inline constexpr std::uint32_t kStages = 80;  // of a block; 132 blocks read 173 MB, as much as one layer's experts
inline constexpr std::uint32_t kStageBytes = 16 * 1024;

struct StampCostInput {
    const char* data;
    void* stamps;  // the case's own region
    uint4* out;    // [blocks][256]; null: the kernel writes nothing of its own
    bool flush;    // false: a build that only reads clocks stores nothing
    abi::WaitReport* report;
};

enum class StampCase : std::uint32_t { kAbsent, kOff, kRead, kStore, kRegister };

inline constexpr std::uint32_t kStampEpoch = 1;
// A case's region before its first launch, as a recorder makes it; and whether its launches left in it what they
// should: every stamp, or none.
std::size_t stamp_region_bytes(std::uint32_t blocks);
std::vector<char> empty_stamp_region(StampCase which, std::uint32_t blocks);
bool is_stamped(StampCase which, const std::vector<char>& region);
// Once before the others, for both of these.
void prepare_stamp_cost(std::uint32_t blocks);
void prepare_stamp_cost_absent(std::uint32_t blocks);
void launch_stamp_cost(StampCase which, const StampCostInput& input, std::uint32_t blocks, bool programmatic,
                       cudaStream_t stream);
void launch_stamp_cost_absent(const StampCostInput& input, std::uint32_t blocks, bool programmatic,
                              cudaStream_t stream);

namespace {

// clang-format off
#define MUSETRACE_STAMP_COST_ROLES(ROLE) \
    ROLE(loader,   0, 0,  1u)            \
    ROLE(consumer, 4, 11, 0xFF0u)
#define MUSETRACE_STAMP_COST_JOBS(JOB)                                                                    \
    JOB(load0, stream, Load, loader, none)      JOB(load1, stream, Load, loader, none)                    \
    JOB(load2, stream, Load, loader, none)      JOB(load3, stream, Load, loader, none)                    \
    JOB(load4, stream, Load, loader, none)      JOB(load5, stream, Load, loader, none)                    \
    JOB(load6, stream, Load, loader, none)      JOB(load7, stream, Load, loader, none)                    \
    JOB(load8, stream, Load, loader, none)      JOB(load9, stream, Load, loader, none)                    \
    JOB(load10, stream, Load, loader, none)                                                               \
    JOB(take0, stream, Compute, consumer, none) JOB(take1, stream, Compute, consumer, none)               \
    JOB(take2, stream, Compute, consumer, none) JOB(take3, stream, Compute, consumer, none)               \
    JOB(take4, stream, Compute, consumer, none) JOB(take5, stream, Compute, consumer, none)               \
    JOB(take6, stream, Compute, consumer, none) JOB(take7, stream, Compute, consumer, none)               \
    JOB(take8, stream, Compute, consumer, none)
// clang-format on
MUSETRACE_JOB_TABLE(StreamJobs, "stamp_cost", 12, MUSETRACE_STAMP_COST_ROLES, MUSETRACE_STAMP_COST_JOBS);

constexpr std::uint32_t kLoads = 11, kTakes = 9, kConsumers = 8, kFirstConsumer = 4;
static_assert(StreamJobs::kNumJobs == kLoads + kTakes && 2 * (kLoads + kConsumers * kTakes) == kStampsPerBlock);

constexpr std::uint32_t kStampThreads = StreamJobs::kWarpsPerBlock * abi::kLanesPerWarp;
using StreamRing = sync::GpuRing<8, kStageBytes, kConsumers>;

struct StampCostShared {
    StreamRing ring;
    sync::Waiter waiter;
};

// The stages in kParts parts, each of them a job: those from kFirst on.
template <std::uint32_t kFirst, std::uint32_t kParts, std::uint32_t kPart = 0, class Stamps, class Take>
__device__ __forceinline__ void stamp_parts(Stamps& stamps, Take take) {
    if constexpr (kPart < kParts) {
        MUSETRACE_BEGIN(stamps, kFirst + kPart);
#pragma unroll 1
        for (std::uint32_t stage = kStages * kPart / kParts; stage < kStages * (kPart + 1) / kParts; ++stage) {
            take(stage);
        }
        MUSETRACE_END(stamps, kFirst + kPart);
        stamp_parts<kFirst, kParts, kPart + 1>(stamps, take);
    }
}

template <class Stamps>
__device__ __forceinline__ void bring_stages(StampCostShared& shared, const char* data, Stamps& stamps) {
    StreamRing::Producer producer(shared.ring, sync::kInFlightBytes);
    const char* source = data + std::size_t{blockIdx.x} * kStages * kStageBytes;
    stamp_parts<0, kLoads>(stamps, [&](std::uint32_t stage) {
        producer.fill(shared.waiter, kCopyLands, source + std::size_t{stage} * kStageBytes, kStageBytes);
    });
}

template <class Stamps>
__device__ __forceinline__ void take_stages(StampCostShared& shared, const StampCostInput& input, Stamps& stamps) {
    sync::RingCursor cursor;
    std::uint32_t seen = 0;
    stamp_parts<kLoads, kTakes>(stamps, [&](std::uint32_t) {
        const char* stage = shared.ring.wait_full(shared.waiter, kCopyLands, cursor);
        seen ^= reinterpret_cast<const std::uint32_t*>(stage)[threadIdx.x];
        shared.ring.mark_empty(cursor);
    });
    const std::uint32_t thread = threadIdx.x - kFirstConsumer * abi::kLanesPerWarp;
    uint4* const out = input.out + blockIdx.x * kConsumers * abi::kLanesPerWarp + thread;
    if (input.out != nullptr) *out = {seen, seen, seen, seen};
}

// kReadOnly: the slots are never stored; `input.flush` is false, but the compiler cannot know.
template <StampMode kMode, bool kReadOnly>
__global__ void __launch_bounds__(kStampThreads, 1) stamp_cost(const __grid_constant__ StampCostInput input) {
    extern __shared__ __align__(128) char bytes[];
    StampCostShared& shared = *reinterpret_cast<StampCostShared*>(bytes);
    const KernelStamps<StreamJobs, kMode> kernel(input.stamps);
    const std::uint32_t warp = threadIdx.x / abi::kLanesPerWarp;
    let_next_launch_begin();
    if (threadIdx.x == 0) {
        shared.ring.init();
        shared.waiter = waiter_of(input.report);
    }
    __syncthreads();
    if (warp == 0) {
        auto stamps = kernel.template role<StreamJobs::loader>();
        bring_stages(shared, input.data, stamps);
        if (!kReadOnly || input.flush) MUSETRACE_FLUSH(stamps);
    } else if (warp >= kFirstConsumer) {
        // As in a layer: weights are loaded before, all else comes after.
        wait_for_launch_before();
        auto stamps = kernel.template role<StreamJobs::consumer>();
        take_stages(shared, input, stamps);
        if (!kReadOnly || input.flush) MUSETRACE_FLUSH(stamps);
    }
}

}  // namespace
}  // namespace musetrace::probe
