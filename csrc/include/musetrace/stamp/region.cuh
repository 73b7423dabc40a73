// Where the stamps of a launch go.
#pragma once

#include "musetrace/abi/job.h"
#include "musetrace/stamp/clock.cuh"

namespace musetrace {

// A rank's stamp region as one block sees it; null when this launch is not recorded.
struct StampRegion {
    char* base = nullptr;
    abi::StampLayout layout{};

    // Of a region that is recorded.
    MUSETRACE_FN abi::BlockHeader* header(std::uint32_t block) const {
        return reinterpret_cast<abi::BlockHeader*>(base + abi::StampLayout::headers_offset()) + block;
    }
    template <class Slot>
    MUSETRACE_FN Slot* slots(std::uint32_t block) const {
        return reinterpret_cast<Slot*>(base + layout.slots_offset()) + std::size_t{block} * layout.slots;
    }
    // A stamp that has no slot.
    MUSETRACE_FN void count_overflow(std::uint32_t block) const {
        if (base != nullptr) detail::add(&header(block)->overflow, 1);
    }
};

// Called once per block and launch, by one thread, before the block's first stamp; null when the launch is not
// recorded. The count of overflows stays: another warp may have been quicker.
#if defined(MUSETRACE_NO_STAMPS)
MUSETRACE_FN void stamp_block(abi::BlockHeader*, std::uint32_t, std::uint32_t) {}
#else
MUSETRACE_FN void stamp_block(abi::BlockHeader* header, std::uint32_t epoch, std::uint32_t sm) {
    if (header == nullptr) return;
    header->time_ns = stamp_clock_ns();
    header->epoch = epoch;
    header->sm = sm;
}
#endif

namespace detail {

// What the host told a kernel in the RegionHeader, in its order.
struct HostWords {
    std::uint32_t blocks, slots, slot_bytes, epoch;
};
MUSETRACE_FN HostWords load_host_words(const abi::RegionHeader* header) {
#if defined(__CUDA_ARCH__)
    const uint4 words = *reinterpret_cast<const uint4*>(header);
    return {words.x, words.y, words.z, words.w};
#else
    return {header->blocks, header->slots, header->slot_bytes, header->epoch};
#endif
}

}  // namespace detail

// A run of slots.
struct SlotRun {
    std::uint32_t first;
    std::uint32_t count;
};

inline constexpr std::uint32_t kAnyRole = 0xFF;

template <class Table>
MUSETRACE_BOTH constexpr bool has_run(std::uint32_t role, std::uint32_t warp) {
    return role == kAnyRole || (Table::kRoles[role].stamping_warps >> warp & 1u);
}

// A warp's; empty when it does not stamp in the role. Device code cannot index a constexpr table by a runtime value, so
// this is a chain of selects over constants.
template <class Table, std::uint32_t kRole = kAnyRole, std::uint32_t kWarp = 0>
MUSETRACE_FN SlotRun slot_run(std::uint32_t warp) {
    constexpr bool kHas = has_run<Table>(kRole, kWarp);
    constexpr std::uint32_t kFirst = abi::kSlotMap<Table>.first_slot[kWarp];
    constexpr std::uint32_t kCount = kHas ? abi::kSlotMap<Table>.num_slots[kWarp] : 0;
    if constexpr (kWarp + 1 < Table::kWarpsPerBlock) {
        if (!kHas || warp != kWarp) return slot_run<Table, kRole, kWarp + 1>(warp);
    }
    return {kFirst, warp == kWarp ? kCount : 0};
}

// Where a warp keeps its slots, and how many they are; null when it stamps nothing.
template <class Slot>
struct WarpPlace {
    Slot* slots;
    std::uint32_t count;
};
template <class Table, std::uint32_t kRole, class Slot>
MUSETRACE_FN WarpPlace<Slot> place_of_warp(const StampRegion& region, std::uint32_t block, std::uint32_t warp) {
    const SlotRun run = slot_run<Table, kRole>(warp);
    if (region.base == nullptr || run.count == 0) return {nullptr, 0};
    return {region.template slots<Slot>(block) + run.first, run.count};
}

// The same for all warps of a block, worked out once, for shared memory: for a kernel whose warps have no instructions
// to spare. All that it gives warps is of whole roles, so that nobody need ask how many slots there are.
template <class Table>
struct BlockSlots {
    abi::BlockHeader* header;
    char* of_warp[Table::kWarpsPerBlock];

    // By a thread for each warp. `first_slot`: of this table's, in a region that has slots of other tables too.
    MUSETRACE_FN void set(const StampRegion& region, std::uint32_t block, std::uint32_t warp,
                          std::uint32_t first_slot = 0) {
        const SlotRun run = slot_run<Table>(warp);
        const bool stamps = region.base != nullptr && run.count != 0;
        char* slots = region.base + region.layout.slots_offset();
        of_warp[warp] = stamps ? slots + (std::size_t{block} * region.layout.slots + first_slot + run.first) *
                                             region.layout.slot_bytes
                               : nullptr;
        if (warp == 0) header = region.base != nullptr ? region.header(block) : nullptr;
    }
    MUSETRACE_FN void count_overflow(std::uint32_t) const {
        if (header != nullptr) detail::add(&header->overflow, 1);
    }
};
template <class Table, std::uint32_t kRole, class Slot>
MUSETRACE_FN WarpPlace<Slot> place_of_warp(const BlockSlots<Table>& block, std::uint32_t, std::uint32_t warp) {
    return {reinterpret_cast<Slot*>(block.of_warp[warp]), 0xFFFF};
}

}  // namespace musetrace
