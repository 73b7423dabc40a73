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
//
// With MUSETRACE_NO_STAMPS defined there are no stamps at all: what kOff is compared with, instruction by instruction.
#pragma once

#include <cstdint>

#include "musetrace/abi/job.h"

#if defined(__CUDACC__)
#define MUSETRACE_FN __device__ __forceinline__
#else
#include <time.h>
#define MUSETRACE_FN inline
#endif

#if defined(MUSETRACE_NO_STAMPS)
#define MUSETRACE_BEGIN(stamps, job)
#define MUSETRACE_END(stamps, job)
#else
#define MUSETRACE_BEGIN(stamps, job) (stamps).template begin<job>()
#define MUSETRACE_END(stamps, job) (stamps).template end<job>()
#endif

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
#if defined(MUSETRACE_NO_STAMPS)
MUSETRACE_FN void stamp_block(const StampRegion&, std::uint32_t, std::uint32_t, std::uint32_t) {}
#else
MUSETRACE_FN void stamp_block(const StampRegion& region, std::uint32_t block, std::uint32_t epoch, std::uint32_t sm) {
    if (region.base != nullptr) *region.header(block) = abi::BlockHeader{stamp_clock_ns(), epoch, sm, 0, 0};
}
#endif

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

// kRegisters: those of 32 slots that a warp keeps in the register build; fewer than the table's most where the role is
// known when compiling.
template <class Table, StampMode kMode, std::uint32_t kRegisters = abi::max_registers<Table>()>
class WarpStamps;

#if defined(MUSETRACE_NO_STAMPS)

template <class Table, StampMode kMode, std::uint32_t kRegisters>
class WarpStamps {
  public:
    template <class... Ignored>
    MUSETRACE_FN WarpStamps(Ignored&&...) {}
    template <class... Ignored>
    MUSETRACE_FN void stamp(Ignored&&...) {}
    MUSETRACE_FN void flush() {}
};

#else

template <class Table, std::uint32_t kRegisters>
class WarpStamps<Table, StampMode::kOff, kRegisters> {
  public:
    MUSETRACE_FN WarpStamps(const StampRegion&, std::uint32_t, std::uint32_t) {}
    template <std::uint32_t kJob>
    MUSETRACE_FN void begin() {}
    template <std::uint32_t kJob>
    MUSETRACE_FN void end() {}
    MUSETRACE_FN void stamp(std::uint32_t) {}
    MUSETRACE_FN void flush() {}
};

template <class Table, std::uint32_t kRegisters>
class WarpStamps<Table, StampMode::kStore, kRegisters> {
  public:
    MUSETRACE_FN WarpStamps(const StampRegion& region, std::uint32_t block, std::uint32_t warp) {
        const SlotRun run = slot_run<Table>(warp);
        const bool stamps = region.base != nullptr && run.count != 0 && is_writer();
        slots_ = stamps ? region.template slots<std::uint64_t>(block) + run.first : nullptr;
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void begin() {
        stamp(abi::local_slot<Table>(kJob));
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void end() {
        stamp(abi::local_slot<Table>(kJob) + 1);
    }
    MUSETRACE_FN void stamp(std::uint32_t slot) {
        std::uint64_t* slots = slots_;
#if defined(__CUDA_ARCH__)
        // Opaque, or the compiler would work out the address of every stamp of a loop before the loop, and spill.
        asm volatile("" : "+l"(slots));
#endif
        if (slots != nullptr) slots[slot] = stamp_clock_ns();
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

template <class Table, std::uint32_t kRegisters>
class WarpStamps<Table, StampMode::kRegister, kRegisters> {
  public:
    // The region outlives this, in shared memory at best: nothing of it is kept in registers until flush().
    MUSETRACE_FN WarpStamps(const StampRegion& region, std::uint32_t block, std::uint32_t warp)
        : region_(region), block_(block), warp_(warp) {}
    template <std::uint32_t kJob>
    MUSETRACE_FN void begin() {
        keep<abi::local_slot<Table>(kJob)>();
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void end() {
        keep<abi::local_slot<Table>(kJob) + 1>();
    }
    // For code that several jobs share: `slot` is abi::local_slot<Table>(job), and one more for its end.
    MUSETRACE_FN void stamp(std::uint32_t slot) {
        const std::uint32_t time = time_now();
#if defined(__CUDA_ARCH__)
        const std::uint32_t lane = opaque_lane();
#pragma unroll
        for (std::uint32_t i = 0; i < kRegisters; ++i) {
            kept_[i] = i * abi::kLanesPerWarp + lane == slot ? time : kept_[i];
        }
#else
        kept_[slot] = time;
#endif
    }
    MUSETRACE_FN void flush() {
        const SlotRun run = slot_run<Table>(warp_);
        if (region_.base == nullptr || run.count == 0) return;
        std::uint32_t* slots = region_.template slots<std::uint32_t>(block_) + run.first;
#if defined(__CUDA_ARCH__)
        const std::uint32_t lane = threadIdx.x & (abi::kLanesPerWarp - 1);
#pragma unroll
        for (std::uint32_t i = 0; i < kRegisters; ++i) {
            if (i * abi::kLanesPerWarp < run.count) slots[i * abi::kLanesPerWarp + lane] = kept_[i];
        }
#else
        for (std::uint32_t i = 0; i < run.count; ++i) slots[i] = kept_[i];
#endif
    }

  private:
    template <std::uint32_t kSlot>
    MUSETRACE_FN void keep() {
        static_assert(kSlot < kRegisters * abi::kLanesPerWarp, "this warp does not stamp the job");
#if defined(__CUDA_ARCH__)
        const std::uint32_t time = time_now();
        kept_[kSlot / abi::kLanesPerWarp] =
            opaque_lane() == kSlot % abi::kLanesPerWarp ? time : kept_[kSlot / abi::kLanesPerWarp];
#else
        kept_[kSlot] = time_now();
#endif
    }

    // 0 means "not written", so the one time in 2^32 whose low half is 0 is kept 1 ns late.
    MUSETRACE_FN static std::uint32_t time_now() {
        const std::uint32_t low = static_cast<std::uint32_t>(stamp_clock_ns());
        return low == 0 ? 1u : low;
    }
#if defined(__CUDA_ARCH__)
    // Opaque, or the compiler would keep a predicate for each of the 32 lanes through the whole kernel, and spill.
    MUSETRACE_FN static std::uint32_t opaque_lane() {
        std::uint32_t lane = threadIdx.x & (abi::kLanesPerWarp - 1);
        asm volatile("" : "+r"(lane));
        return lane;
    }
#endif

#if defined(__CUDACC__)
    std::uint32_t kept_[kRegisters] = {};
#else
    std::uint32_t kept_[kRegisters * abi::kLanesPerWarp] = {};
#endif
    const StampRegion& region_;
    std::uint32_t block_;
    std::uint32_t warp_;
};

#endif

}  // namespace musetrace
