// The ways to keep what a warp stamps, one class for each mode. All of them have
//
//   put(slot)              the clock, now
//   put_word(slot, word)   32 bits that are no time
//   overflow()             a stamp that has no slot
//   flush()                once, behind the warp's last stamp, where the warp waits anyway
//
// Slots are those of the warp's run, and are not checked here.
#pragma once

#include "musetrace/stamp/region.cuh"

namespace musetrace {

using abi::StampMode;

// kRegisters: those of 32 slots that a warp keeps in the register build.
template <class Table, StampMode kMode, std::uint32_t kRegisters, std::uint32_t kRole>
class WarpSlots;

template <class Table, std::uint32_t kRegisters, std::uint32_t kRole>
class WarpSlots<Table, StampMode::kOff, kRegisters, kRole> {
  public:
    MUSETRACE_FN WarpSlots(const StampRegion&, std::uint32_t, std::uint32_t) {}
    MUSETRACE_FN void put(std::uint32_t) {}
    MUSETRACE_FN void put_word(std::uint32_t, std::uint32_t) {}
    MUSETRACE_FN void overflow() {}
    MUSETRACE_FN void flush() {}
};

template <class Table, std::uint32_t kRegisters, std::uint32_t kRole>
class WarpSlots<Table, StampMode::kStore, kRegisters, kRole> {
  public:
    MUSETRACE_FN WarpSlots(const StampRegion& region, std::uint32_t block, std::uint32_t warp)
        : region_(region), block_(block) {
        const SlotRun run = slot_run<Table, kRole>(warp);
        const bool stamps = region.base != nullptr && run.count != 0 && detail::lane_id() == 0;
        slots_ = stamps ? region.template slots<std::uint64_t>(block) + run.first : nullptr;
    }
    MUSETRACE_FN void put(std::uint32_t slot) {
        std::uint64_t* slots = opaque(slots_);
        if (slots != nullptr) slots[slot] = stamp_clock_ns();
    }
    MUSETRACE_FN void put_word(std::uint32_t slot, std::uint32_t word) {
        std::uint64_t* slots = opaque(slots_);
        if (slots != nullptr) slots[slot] = word;
    }
    MUSETRACE_FN void overflow() {
        if (slots_ != nullptr) region_.count_overflow(block_);
    }
    MUSETRACE_FN void flush() {}

  private:
    // Opaque, or the compiler would work out the address of every stamp of a loop before the loop, and spill.
    MUSETRACE_FN static std::uint64_t* opaque(std::uint64_t* slots) {
#if defined(__CUDA_ARCH__)
        asm volatile("" : "+l"(slots));
#endif
        return slots;
    }

    const StampRegion& region_;
    std::uint32_t block_;
    std::uint64_t* slots_;
};

template <class Table, std::uint32_t kRegisters, std::uint32_t kRole>
class WarpSlots<Table, StampMode::kRegister, kRegisters, kRole> {
  public:
    // The region outlives this, in shared memory at best: nothing of it is kept in registers until flush().
    MUSETRACE_FN WarpSlots(const StampRegion& region, std::uint32_t block, std::uint32_t warp)
        : region_(region), block_(block), warp_(warp), lane_(detail::lane_id()) {}
    MUSETRACE_FN void put(std::uint32_t slot) { put_word(slot, stamp_clock_low_ns()); }
    MUSETRACE_FN void put_word(std::uint32_t slot, std::uint32_t word) {
#if defined(__CUDA_ARCH__)
        // Opaque, or the compiler would keep a predicate for each of the 32 lanes through the whole kernel, and spill.
        asm volatile("" : "+r"(lane_));
#pragma unroll
        for (std::uint32_t i = 0; i < kRegisters; ++i) {
            const bool here = slot / abi::kLanesPerWarp == i && lane_ == slot % abi::kLanesPerWarp;
            kept_[i] = here ? word : kept_[i];
        }
#else
        kept_[slot] = word;
#endif
    }
    MUSETRACE_FN void overflow() {
        if (lane_ == 0 && slot_run<Table, kRole>(warp_).count != 0) region_.count_overflow(block_);
    }
    MUSETRACE_FN void flush() {
        const SlotRun run = slot_run<Table, kRole>(warp_);
        if (region_.base == nullptr || run.count == 0) return;
        std::uint32_t* slots = region_.template slots<std::uint32_t>(block_) + run.first;
#if defined(__CUDA_ARCH__)
#pragma unroll
        for (std::uint32_t i = 0; i < kRegisters; ++i) {
            if (i * abi::kLanesPerWarp < run.count) slots[i * abi::kLanesPerWarp + lane_] = kept_[i];
        }
#else
        for (std::uint32_t i = 0; i < run.count; ++i) slots[i] = kept_[i];
#endif
    }

  private:
#if defined(__CUDACC__)
    std::uint32_t kept_[kRegisters] = {};
#else
    std::uint32_t kept_[kRegisters * abi::kLanesPerWarp] = {};
#endif
    const StampRegion& region_;
    std::uint32_t block_;
    std::uint32_t warp_;
    std::uint32_t lane_;
};

}  // namespace musetrace
