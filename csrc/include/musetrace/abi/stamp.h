// Layout of the stamp buffer: what a kernel writes and the collector reads. The only definition.
//
// One region per rank and launch:
//
//   RegionHeader                        what the host tells a kernel, and what the kernel says about the launch
//   BlockHeader headers[blocks]         who wrote, in which launch, and one full 64-bit time
//   (padding to kRegionAlign)
//   slot        slots[blocks][slots]    slot 2k is the begin of job instance k, slot 2k+1 its end; 0 = not written
//   (padding to kRegionAlign)
//
// A slot is 8 bytes (the full time) in the `store` build and 4 bytes (the low half) in the `register` build; the
// host widens a 4-byte slot against the block header, which was written within 2^32 ns = 4.29 s before it.
#pragma once

#include "musetrace/abi/integers.h"

namespace musetrace::abi {

inline constexpr std::uint32_t kStampAbiVersion = 2;
inline constexpr std::uint32_t kLanesPerWarp = 32;
inline constexpr std::size_t kRegionAlign = 128;  // one coalesced 32-lane store of 4-byte slots

enum class StampMode : std::uint8_t {
    kOff = 0,       // no code at all
    kStore = 1,     // lane 0 stores each stamp at once, 8 bytes
    kRegister = 2,  // lane = slot keeps the stamp in a register; one flush per warp, 4 bytes a slot
};

MUSETRACE_BOTH constexpr std::uint32_t slot_bytes(StampMode mode) {
    return mode == StampMode::kStore ? 8u : mode == StampMode::kRegister ? 4u : 0u;
}

// Of kernels that get nothing but a pointer (KernelStamps). The first four are the host's, before the launch, and are
// loaded at once; the rest is the kernel's, and 0 before the launch.
struct alignas(128) RegionHeader {
    std::uint32_t blocks;          // that the region has room for
    std::uint32_t slots;           // of a block
    std::uint32_t slot_bytes;      // 4 or 8
    std::uint32_t epoch;           // of the launch, never 0
    std::uint32_t launches;        // how often the kernel ran since this was cleared
    std::uint32_t dropped_blocks;  // blocks for which there was no room; they stamped nothing
    std::uint32_t mismatch;        // region_shape of a kernel that the region is not made for; it stamped nothing
    std::uint32_t reserved[25];
};
static_assert(sizeof(RegionHeader) == kRegionAlign);

// What a kernel's table and mode ask of a region, as one number; never 0 for a kernel that stamps.
MUSETRACE_BOTH constexpr std::uint32_t region_shape(std::uint32_t slots, std::uint32_t slot_bytes) {
    return slot_bytes << 24 | slots;
}

struct BlockHeader {
    std::uint64_t time_ns;   // clock when the block began; the base against which 4-byte slots are widened
    std::uint32_t epoch;     // launch epoch, never 0; a header of another epoch marks the block's slots as stale
    std::uint32_t sm;        // SM id (GPU) or CPU id (host device)
    std::uint32_t overflow;  // stamps that found no slot
    std::uint32_t reserved;
};
static_assert(sizeof(BlockHeader) == 24 && alignof(BlockHeader) == 8);

MUSETRACE_BOTH constexpr std::size_t align_region(std::size_t bytes) {
    return (bytes + kRegionAlign - 1) / kRegionAlign * kRegionAlign;
}

// Byte map of one rank's region.
struct StampLayout {
    std::uint32_t blocks;
    std::uint32_t slots;
    std::uint32_t slot_bytes;

    MUSETRACE_BOTH static constexpr std::size_t headers_offset() { return sizeof(RegionHeader); }
    MUSETRACE_BOTH constexpr std::size_t slots_offset() const {
        return align_region(headers_offset() + std::size_t{blocks} * sizeof(BlockHeader));
    }
    MUSETRACE_BOTH constexpr std::size_t region_bytes() const {
        return slots_offset() + align_region(std::size_t{blocks} * slots * slot_bytes);
    }
};
static_assert(StampLayout{132, 256, 8}.slots_offset() == 3328);
static_assert(StampLayout{132, 256, 8}.region_bytes() == 3328 + 132 * 256 * 8);

// The host's widening of a 4-byte slot: the first time at or after the block's own that has these low bits.
// A stamp taken up to kWidenBackNs before the header (another warp was quicker) is still placed right.
inline constexpr std::uint64_t kWidenBackNs = 1u << 20;
MUSETRACE_BOTH constexpr std::uint64_t widen(std::uint32_t low, std::uint64_t header_ns) {
    const std::uint64_t base = header_ns - kWidenBackNs;
    return base + static_cast<std::uint32_t>(low - static_cast<std::uint32_t>(base));
}
static_assert(widen(5, (1ull << 32) - 3) == (1ull << 32) + 5);
static_assert(widen(0xFFFFFFFFu, (1ull << 32) + 7) == (1ull << 32) - 1);

}  // namespace musetrace::abi
