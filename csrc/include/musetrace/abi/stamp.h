// Layout of the stamp buffer: what a kernel writes and the collector reads. The only definition.
//
// One region per rank:
//
//   BlockHeader headers[blocks]         who wrote, in which launch, and one full 64-bit time
//   (padding to kRegionAlign)
//   slot        slots[blocks][slots]    slot 2k is the begin of job instance k, slot 2k+1 its end; 0 = not written
//   (padding to kRegionAlign)
//
// A slot is 8 bytes (the full time) in the `store` build and 4 bytes (the low half) in the `register` build; the
// host widens a 4-byte slot against the block header, which was written within 2^32 ns = 4.29 s before it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace musetrace::abi {

inline constexpr std::uint32_t kStampAbiVersion = 1;
inline constexpr std::uint32_t kLanesPerWarp = 32;
inline constexpr std::size_t kRegionAlign = 128;  // one coalesced 32-lane store of 4-byte slots

enum class StampMode : std::uint8_t {
    kOff = 0,       // no code at all
    kStore = 1,     // lane 0 stores each stamp at once, 8 bytes
    kRegister = 2,  // lane = slot keeps the stamp in a register; one flush per warp, 4 bytes a slot
};

constexpr std::uint32_t slot_bytes(StampMode mode) {
    return mode == StampMode::kStore ? 8u : mode == StampMode::kRegister ? 4u : 0u;
}

struct BlockHeader {
    std::uint64_t time_ns;   // clock when the block began; the base against which 4-byte slots are widened
    std::uint32_t epoch;     // launch epoch, never 0; a header of another epoch marks the block's slots as stale
    std::uint32_t sm;        // SM id (GPU) or CPU id (host device)
    std::uint32_t overflow;  // stamps that found no slot
    std::uint32_t reserved;
};
static_assert(sizeof(BlockHeader) == 24 && alignof(BlockHeader) == 8);
static_assert(offsetof(BlockHeader, time_ns) == 0 && offsetof(BlockHeader, epoch) == 8);
static_assert(offsetof(BlockHeader, sm) == 12 && offsetof(BlockHeader, overflow) == 16);

constexpr std::size_t align_region(std::size_t bytes) {
    return (bytes + kRegionAlign - 1) / kRegionAlign * kRegionAlign;
}

// Byte map of one rank's region.
struct StampLayout {
    std::uint32_t blocks;
    std::uint32_t slots;
    std::uint32_t slot_bytes;

    constexpr std::size_t slots_offset() const { return align_region(blocks * sizeof(BlockHeader)); }
    constexpr std::size_t region_bytes() const {
        return slots_offset() + align_region(std::size_t{blocks} * slots * slot_bytes);
    }
};
static_assert(StampLayout{132, 256, 8}.slots_offset() == 3200);
static_assert(StampLayout{132, 256, 8}.region_bytes() == 3200 + 132 * 256 * 8);

// The host's widening of a 4-byte slot: the first time at or after the block's own that has these low bits.
// A stamp taken up to kWidenBackNs before the header (another warp was quicker) is still placed right.
inline constexpr std::uint64_t kWidenBackNs = 1u << 20;
constexpr std::uint64_t widen(std::uint32_t low, std::uint64_t header_ns) {
    const std::uint64_t base = header_ns - kWidenBackNs;
    return base + static_cast<std::uint32_t>(low - static_cast<std::uint32_t>(base));
}
static_assert(widen(5, (1ull << 32) - 3) == (1ull << 32) + 5);
static_assert(widen(0xFFFFFFFFu, (1ull << 32) + 7) == (1ull << 32) - 1);

}  // namespace musetrace::abi
