#include <cstring>

#include "probe/stamp_cost.cuh"

namespace musetrace::probe {
namespace {

using StampKernel = void (*)(StampCostInput);

StampKernel stamp_kernel(StampCase which) {
    switch (which) {
        case StampCase::kRead:
            return stamp_cost<StampMode::kRegister, true>;
        case StampCase::kStore:
            return stamp_cost<StampMode::kStore, false>;
        case StampCase::kRegister:
            return stamp_cost<StampMode::kRegister, false>;
        default:
            return stamp_cost<StampMode::kOff, false>;
    }
}

abi::StampLayout layout_of(StampCase which, std::uint32_t blocks) {
    const StampMode mode = which == StampCase::kStore ? StampMode::kStore : StampMode::kRegister;
    return {blocks, abi::kSlotMap<StreamJobs>.total, abi::slot_bytes(mode)};
}

}  // namespace

std::size_t stamp_region_bytes(std::uint32_t blocks) { return layout_of(StampCase::kStore, blocks).region_bytes(); }

std::vector<char> empty_stamp_region(StampCase which, std::uint32_t blocks) {
    const abi::StampLayout layout = layout_of(which, blocks);
    std::vector<char> region(stamp_region_bytes(blocks));
    const abi::RegionHeader header{layout.blocks, layout.slots, layout.slot_bytes, kStampEpoch, 0, 0, 0, {}};
    std::memcpy(region.data(), &header, sizeof header);
    return region;
}

bool is_stamped(StampCase which, const std::vector<char>& region) {
    abi::RegionHeader header;
    std::memcpy(&header, region.data(), sizeof header);
    const bool runs_stamps = which != StampCase::kAbsent && which != StampCase::kOff;
    if (header.mismatch != 0 || header.dropped_blocks != 0 || (header.launches != 0) != runs_stamps) return false;
    const abi::StampLayout layout = layout_of(which, header.blocks);
    std::size_t stamps = 0;
    for (std::size_t slot = 0; slot < std::size_t{layout.blocks} * layout.slots; ++slot) {
        std::uint64_t time = 0;
        std::memcpy(&time, region.data() + layout.slots_offset() + slot * layout.slot_bytes, layout.slot_bytes);
        stamps += time != 0;
    }
    const bool keeps = which == StampCase::kStore || which == StampCase::kRegister;
    return stamps == (keeps ? std::size_t{layout.blocks} * kStampsPerBlock : 0);
}

void prepare_stamp_cost(std::uint32_t blocks) {
    for (const StampCase which : {StampCase::kOff, StampCase::kRead, StampCase::kStore, StampCase::kRegister}) {
        prepare(stamp_kernel(which), {blocks, kStampThreads, sizeof(StampCostShared)});
    }
}

void launch_stamp_cost(StampCase which, const StampCostInput& input, std::uint32_t blocks, bool programmatic,
                       cudaStream_t stream) {
    launch(stamp_kernel(which), {blocks, kStampThreads, sizeof(StampCostShared), programmatic}, stream, input);
}

}  // namespace musetrace::probe
