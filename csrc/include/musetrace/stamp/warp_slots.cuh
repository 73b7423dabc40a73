// The ways to keep what a warp stamps, one class for each mode. All of them have
//
//   put(slot)              the clock, now
//   put_both(slot, other)  the same, read once
//   put_word(slot, word)   32 bits that are no time, and behind them the mark that they were written
//   overflow()             a stamp that has no slot
//   flush()                once, behind the warp's last stamp, where the warp waits anyway
//   flush_page(page)       for kByPage, see there
//
// Slots are those of the warp's run, and are not checked here.
#pragma once

#include "musetrace/stamp/region.cuh"

namespace musetrace {

using abi::StampMode;

// kRegisters: those of 32 slots that a warp keeps in the register build. Where: StampRegion or BlockSlots; it outlives
// this.
template <class Table, StampMode kMode, std::uint32_t kRegisters, std::uint32_t kRole, class Where>
class WarpSlots;

// In place of a number of registers: one, for one page of 32 slots after the other. The kernel calls flush_page(page)
// behind the last stamp of each page but the last, which flush() writes; a stamp of another page than the next to be
// flushed would be filed under the wrong job. For warps that have no register to spare.
inline constexpr std::uint32_t kByPage = 0;
// Or none: lane 0 stores each stamp at once, in 4 bytes. For a role with many iterations: a register for each 16 spans
// is looked at by every stamp, and one store is cheaper than looking at more than a few.
inline constexpr std::uint32_t kAtOnce = 0xFFFFFFFF;
inline constexpr std::uint32_t kMostRegisters = 3;
MUSETRACE_BOTH constexpr std::uint32_t registers_for(std::uint32_t wanted) {
    return wanted > kMostRegisters ? kAtOnce : wanted;
}

template <class Table, std::uint32_t kRegisters, std::uint32_t kRole, class Where>
class WarpSlots<Table, StampMode::kOff, kRegisters, kRole, Where> {
  public:
    MUSETRACE_FN WarpSlots(const Where&, std::uint32_t, std::uint32_t) {}
    MUSETRACE_FN void put(std::uint32_t) {}
    MUSETRACE_FN void put_both(std::uint32_t, std::uint32_t) {}
    MUSETRACE_FN void put_both_of_any(std::uint32_t, std::uint32_t) {}
    MUSETRACE_FN void put_word(std::uint32_t, std::uint32_t) {}
    MUSETRACE_FN void overflow() {}
    MUSETRACE_FN void flush() {}
    MUSETRACE_FN void flush_page(std::uint32_t) {}
};

// Lane 0 stores each stamp at once, as 8 bytes or 4.
template <class Table, std::uint32_t kRole, class Where, class Slot>
class StoredSlots {
  public:
    MUSETRACE_FN StoredSlots(const Where& where, std::uint32_t block, std::uint32_t warp)
        : where_(where), block_(block) {
        Slot* slots = place_of_warp<Table, kRole, Slot>(where, block, warp).slots;
        slots_ = detail::lane_id() == 0 ? slots : nullptr;
    }
    MUSETRACE_FN void put(std::uint32_t slot) {
        Slot* slots = opaque(slots_);
        if (slots != nullptr) slots[slot] = detail::clock_for<Slot>();
    }
    MUSETRACE_FN void put_both(std::uint32_t slot, std::uint32_t other) {
        Slot* slots = opaque(slots_);
        if (slots == nullptr) return;
        const Slot time = detail::clock_for<Slot>();
        slots[slot] = time;
        slots[other] = time;
    }
    MUSETRACE_FN void put_both_of_any(std::uint32_t slot, std::uint32_t other) {
        if (slot == other) {
            put(slot);
        } else {
            put_both(slot, other);
        }
    }
    MUSETRACE_FN void put_word(std::uint32_t slot, std::uint32_t word) {
        Slot* slots = opaque(slots_);
        if (slots == nullptr) return;
        slots[slot] = word;
        slots[slot + 1] = 1;
    }
    MUSETRACE_FN void overflow() {
        if (slots_ != nullptr) where_.count_overflow(block_);
    }
    MUSETRACE_FN void flush() {}
    MUSETRACE_FN void flush_page(std::uint32_t) {}

  private:
    // Opaque, or the compiler would work out the address of every stamp of a loop before the loop, and spill.
    MUSETRACE_FN static Slot* opaque(Slot* slots) {
#if defined(__CUDA_ARCH__)
        asm volatile("" : "+l"(slots));
#endif
        return slots;
    }

    const Where& where_;
    std::uint32_t block_;
    Slot* slots_;
};

template <class Table, std::uint32_t kRegisters, std::uint32_t kRole, class Where>
class WarpSlots<Table, StampMode::kStore, kRegisters, kRole, Where>
    : public StoredSlots<Table, kRole, Where, std::uint64_t> {
  public:
    using StoredSlots<Table, kRole, Where, std::uint64_t>::StoredSlots;
};

template <class Table, std::uint32_t kRole, class Where>
class WarpSlots<Table, StampMode::kRegister, kAtOnce, kRole, Where>
    : public StoredSlots<Table, kRole, Where, std::uint32_t> {
  public:
    using StoredSlots<Table, kRole, Where, std::uint32_t>::StoredSlots;
};

#if defined(__CUDACC__)
namespace detail {

// What a register keeps that holds no time yet: no time of a clock that ticks in even numbers. A read is kept as it is,
// and made a slot when it is written.
inline constexpr std::uint32_t kEmpty = 1;
MUSETRACE_FN std::uint32_t slot_of_kept(std::uint32_t kept) { return kept == kEmpty ? 0 : low_half(kept); }

// A read that only the lane of the slot does: the predicate costs one instruction, the read one, and nothing waits for
// its value. Of a read by all lanes the compiler would make one of the uniform datapath where it can, which takes
// longer and is overtaken by later ones.
MUSETRACE_FN void read_clock_if(bool here, std::uint32_t& kept) {
#if defined(__CUDA_ARCH__)
    asm volatile("{ .reg .pred here; setp.ne.u32 here, %1, 0; @here mov.u32 %0, %%globaltimer_lo; }"
                 : "+r"(kept)
                 : "r"(static_cast<std::uint32_t>(here))
                 : "memory");
#endif
}

// Without it the compiler would keep a predicate for each of the 32 lanes through the whole kernel, and spill.
MUSETRACE_FN void forget_predicates(std::uint32_t& lane) {
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(lane));
#endif
}

}  // namespace detail

template <class Table, std::uint32_t kRole, class Where>
class WarpSlots<Table, StampMode::kRegister, kByPage, kRole, Where> {
  public:
    MUSETRACE_FN WarpSlots(const Where& where, std::uint32_t block, std::uint32_t warp)
        : where_(where), block_(block), warp_(warp), lane_(detail::lane_id()) {}
    MUSETRACE_FN void put(std::uint32_t slot) {
        detail::forget_predicates(lane_);
        detail::read_clock_if(lane_ == slot % abi::kLanesPerWarp, kept_);
    }
    MUSETRACE_FN void put_both(std::uint32_t slot, std::uint32_t other) {
        detail::forget_predicates(lane_);
        const bool here = lane_ == slot % abi::kLanesPerWarp || lane_ == other % abi::kLanesPerWarp;
        detail::read_clock_if(here, kept_);
    }
    MUSETRACE_FN void put_both_of_any(std::uint32_t slot, std::uint32_t other) { put_both(slot, other); }
    MUSETRACE_FN void overflow() {
        if (lane_ == 0 && place().slots != nullptr) where_.count_overflow(block_);
    }
    MUSETRACE_FN void flush_page(std::uint32_t page) {
        const WarpPlace<std::uint32_t> to = place();
        if (to.slots != nullptr && page * abi::kLanesPerWarp < to.count) {
            to.slots[page * abi::kLanesPerWarp + lane_] = detail::slot_of_kept(kept_);
        }
        kept_ = detail::kEmpty;
    }
    MUSETRACE_FN void flush() { flush_page(abi::max_registers<Table>() - 1); }

  private:
    MUSETRACE_FN WarpPlace<std::uint32_t> place() const {
        return place_of_warp<Table, kRole, std::uint32_t>(where_, block_, warp_);
    }

    std::uint32_t kept_ = detail::kEmpty;
    const Where& where_;
    std::uint32_t block_;
    std::uint32_t warp_;
    std::uint32_t lane_;
};
#endif

template <class Table, std::uint32_t kRegisters, std::uint32_t kRole, class Where>
class WarpSlots<Table, StampMode::kRegister, kRegisters, kRole, Where> {
  public:
    MUSETRACE_FN WarpSlots(const Where& where, std::uint32_t block, std::uint32_t warp)
        : where_(where), block_(block), warp_(warp), lane_(detail::lane_id()) {
#if defined(__CUDA_ARCH__)
        clear();
#endif
    }
    MUSETRACE_FN void put(std::uint32_t slot) { put_both(slot, slot); }
    MUSETRACE_FN void put_both(std::uint32_t slot, std::uint32_t other) {
#if defined(__CUDA_ARCH__)
        detail::forget_predicates(lane_);
#pragma unroll
        for (std::uint32_t i = 0; i < kRegisters; ++i)
            detail::read_clock_if(is_here(i, slot) || is_here(i, other), kept_[i]);
#else
        kept_[slot] = kept_[other] = low_half(stamp_clock_ns());
#endif
    }
    // As put_both, with fewer instructions where the compiler does not know the slots.
    MUSETRACE_FN void put_both_of_any(std::uint32_t slot, std::uint32_t other) {
        if constexpr (kRegisters == 1) return put_both(slot, other);
#if defined(__CUDA_ARCH__)
        detail::forget_predicates(lane_);
        const std::uint32_t to_slot = slot - lane_, to_other = other - lane_;
#pragma unroll
        for (std::uint32_t i = 0; i < kRegisters; ++i) {
            const std::uint32_t before = i * abi::kLanesPerWarp;
            detail::read_clock_if(to_slot == before || to_other == before, kept_[i]);
        }
#else
        put_both(slot, other);
#endif
    }
    MUSETRACE_FN void put_word(std::uint32_t slot, std::uint32_t word) {
#if defined(__CUDA_ARCH__)
        detail::forget_predicates(lane_);
        const std::uint32_t to_slot = slot - lane_;
#pragma unroll
        for (std::uint32_t i = 0; i < kRegisters; ++i) {
            const std::uint32_t before = i * abi::kLanesPerWarp;
            kept_[i] = to_slot == before ? word : to_slot + 1 == before ? 1 : kept_[i];
        }
#else
        kept_[slot] = word;
        kept_[slot + 1] = 1;
#endif
    }
    MUSETRACE_FN void overflow() {
        if (lane_ == 0 && place().slots != nullptr) where_.count_overflow(block_);
    }
    MUSETRACE_FN void flush() {
        const WarpPlace<std::uint32_t> to = place();
        if (to.slots == nullptr) return;
#if defined(__CUDA_ARCH__)
        copy(to.slots, to.count);
#else
        for (std::uint32_t i = 0; i < to.count; ++i) to.slots[i] = kept_[i];
#endif
    }
    MUSETRACE_FN void flush_page(std::uint32_t) {}

  private:
    MUSETRACE_FN WarpPlace<std::uint32_t> place() const {
        return place_of_warp<Table, kRole, std::uint32_t>(where_, block_, warp_);
    }
#if defined(__CUDA_ARCH__)
    MUSETRACE_FN bool is_here(std::uint32_t i, std::uint32_t slot) const {
        if constexpr (kRegisters == 1) return lane_ == slot;
        return slot / abi::kLanesPerWarp == i && lane_ == slot % abi::kLanesPerWarp;
    }
    template <std::uint32_t kRegister>
    MUSETRACE_FN bool holds_word() const {
        constexpr std::uint32_t kLanes = abi::payload_lanes<Table>(kRole, kRegister);
        return kLanes >> lane_ & 1u;
    }
    template <std::uint32_t kRegister = 0>
    MUSETRACE_FN void clear() {
        if constexpr (kRegister < kRegisters) {
            kept_[kRegister] = holds_word<kRegister>() ? 0 : detail::kEmpty;
            clear<kRegister + 1>();
        }
    }
    template <std::uint32_t kRegister = 0>
    MUSETRACE_FN void copy(std::uint32_t* slots, std::uint32_t count) const {
        if constexpr (kRegister < kRegisters) {
            const std::uint32_t kept = kept_[kRegister], time = detail::slot_of_kept(kept);
            if (kRegister * abi::kLanesPerWarp < count) {
                slots[kRegister * abi::kLanesPerWarp + lane_] = holds_word<kRegister>() ? kept : time;
            }
            copy<kRegister + 1>(slots, count);
        }
    }
#endif

#if defined(__CUDACC__)
    std::uint32_t kept_[kRegisters];
#else
    std::uint32_t kept_[kRegisters * abi::kLanesPerWarp] = {};
#endif
    const Where& where_;
    std::uint32_t block_;
    std::uint32_t warp_;
    std::uint32_t lane_;
};

}  // namespace musetrace
