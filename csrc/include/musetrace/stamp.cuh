// Stamps inside a kernel: each warp notes the clock at the begin and the end of its jobs.
//
//   musetrace::WarpStamps<MuseLayer, StampMode::kRegister> stamps(region, layout, block, warp);
//   MUSETRACE_BEGIN(stamps, MuseLayer::o_proj_compute);
//   ...
//   MUSETRACE_END(stamps, MuseLayer::o_proj_compute);
//   stamps.flush();                       // where the warp waits anyway
//
// Three builds from one source. kStore: lane 0 stores 8 bytes at once. kRegister: the lane whose number is the slot
// keeps the low 32 bits of the clock; flush() writes each register with one coalesced store. kOff: no code.
// The same header serves the host device, where a warp is a thread and its lanes are an array.
#pragma once

#include <cstdint>

#include "abi/job.h"

#if defined(__CUDACC__)
#define MUSETRACE_FN __device__ __forceinline__
#else
#include <time.h>
#define MUSETRACE_FN inline
#endif

#define MUSETRACE_BEGIN(stamps, job) (stamps).template begin<job>()
#define MUSETRACE_END(stamps, job) (stamps).template end<job>()

namespace musetrace {

using abi::StampMode;

// The clock of all stamps: %globaltimer on the GPU, CLOCK_MONOTONIC on the host device. Nanoseconds.
MUSETRACE_FN std::uint64_t stamp_clock_ns() {
#if defined(__CUDA_ARCH__)
    std::uint64_t now;
    // The memory clobber keeps the read between the work before it and the work after it.
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
#elif defined(__CUDACC__)
    return 0;
#else
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ull + static_cast<std::uint64_t>(now.tv_nsec);
#endif
}

// A rank's stamp region as one block sees it; null when this launch is not recorded.
struct StampRegion {
    char* base = nullptr;
    abi::StampLayout layout{};

    MUSETRACE_FN abi::BlockHeader* header(std::uint32_t block) const {
        return reinterpret_cast<abi::BlockHeader*>(base) + block;
    }
    template <class Slot>
    MUSETRACE_FN Slot* slots(std::uint32_t block) const {
        return reinterpret_cast<Slot*>(base + layout.slots_offset()) + std::size_t{block} * layout.slots;
    }
};

// Called once per block and launch, by one thread, before the block's first stamp.
MUSETRACE_FN void stamp_block(const StampRegion& region, std::uint32_t block, std::uint32_t epoch, std::uint32_t sm) {
    if (region.base != nullptr) *region.header(block) = abi::BlockHeader{stamp_clock_ns(), epoch, sm, 0, 0};
}

// A warp's run of slots. Device code cannot index a constexpr table by a runtime value, so this is a chain of
// selects over constants.
struct SlotRun {
    std::uint32_t first;
    std::uint32_t count;
};
template <class Table, std::uint32_t kWarp = 0>
MUSETRACE_FN SlotRun slot_run(std::uint32_t warp) {
    constexpr std::uint32_t kFirst = abi::kSlotMap<Table>.first_slot[kWarp];
    constexpr std::uint32_t kCount = abi::kSlotMap<Table>.num_slots[kWarp];
    if constexpr (kWarp + 1 < Table::kWarpsPerBlock) {
        if (warp != kWarp) return slot_run<Table, kWarp + 1>(warp);
    }
    return {kFirst, kCount};
}

template <class Table, StampMode kMode>
class WarpStamps;

template <class Table>
class WarpStamps<Table, StampMode::kOff> {
  public:
    MUSETRACE_FN WarpStamps(const StampRegion&, std::uint32_t, std::uint32_t) {}
    template <std::uint32_t kJob>
    MUSETRACE_FN void begin() {}
    template <std::uint32_t kJob>
    MUSETRACE_FN void end() {}
    MUSETRACE_FN void flush() {}
};

template <class Table>
class WarpStamps<Table, StampMode::kStore> {
  public:
    MUSETRACE_FN WarpStamps(const StampRegion& region, std::uint32_t block, std::uint32_t warp) {
        const SlotRun run = slot_run<Table>(warp);
        const bool stamps = region.base != nullptr && run.count != 0 && is_writer();
        slots_ = stamps ? region.template slots<std::uint64_t>(block) + run.first : nullptr;
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void begin() {
        constexpr std::uint32_t kSlot = abi::local_slot<Table>(kJob);
        if (slots_ != nullptr) slots_[kSlot] = stamp_clock_ns();
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void end() {
        constexpr std::uint32_t kSlot = abi::local_slot<Table>(kJob) + 1;
        if (slots_ != nullptr) slots_[kSlot] = stamp_clock_ns();
    }
    MUSETRACE_FN void flush() {}

  private:
    MUSETRACE_FN static bool is_writer() {
#if defined(__CUDA_ARCH__)
        return (threadIdx.x & (abi::kLanesPerWarp - 1)) == 0;
#else
        return true;
#endif
    }
    std::uint64_t* slots_;
};

template <class Table>
class WarpStamps<Table, StampMode::kRegister> {
  public:
    MUSETRACE_FN WarpStamps(const StampRegion& region, std::uint32_t block, std::uint32_t warp) {
        const SlotRun run = slot_run<Table>(warp);
        const bool stamps = region.base != nullptr && run.count != 0;
        slots_ = stamps ? region.template slots<std::uint32_t>(block) + run.first : nullptr;
        registers_ = run.count / abi::kLanesPerWarp;
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void begin() {
        keep<abi::local_slot<Table>(kJob)>();
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void end() {
        keep<abi::local_slot<Table>(kJob) + 1>();
    }
    MUSETRACE_FN void flush() {
        if (slots_ == nullptr) return;
#if defined(__CUDA_ARCH__)
        const std::uint32_t lane = threadIdx.x & (abi::kLanesPerWarp - 1);
#pragma unroll
        for (std::uint32_t i = 0; i < kMaxRegisters; ++i) {
            if (i < registers_) slots_[i * abi::kLanesPerWarp + lane] = kept_[i];
        }
#else
        for (std::uint32_t i = 0; i < registers_ * abi::kLanesPerWarp; ++i) slots_[i] = kept_[i];
#endif
    }

  private:
    static constexpr std::uint32_t kMaxRegisters = abi::max_registers<Table>();

    // 0 means "not written", so the one time in 2^32 whose low half is 0 is kept 1 ns late.
    template <std::uint32_t kSlot>
    MUSETRACE_FN void keep() {
        const std::uint32_t low = static_cast<std::uint32_t>(stamp_clock_ns());
        const std::uint32_t time = low == 0 ? 1u : low;
#if defined(__CUDA_ARCH__)
        const bool mine = (threadIdx.x & (abi::kLanesPerWarp - 1)) == kSlot % abi::kLanesPerWarp;
        kept_[kSlot / abi::kLanesPerWarp] = mine ? time : kept_[kSlot / abi::kLanesPerWarp];
#else
        kept_[kSlot] = time;
#endif
    }

#if defined(__CUDACC__)
    std::uint32_t kept_[kMaxRegisters] = {};
#else
    std::uint32_t kept_[kMaxRegisters * abi::kLanesPerWarp] = {};
#endif
    std::uint32_t* slots_;
    std::uint32_t registers_;
};

}  // namespace musetrace
