// The same source without stamps.
#define MUSETRACE_NO_STAMPS
#include "probe/stamp_cost.cuh"

namespace musetrace::probe {

void prepare_stamp_cost_absent(std::uint32_t blocks) {
    prepare(stamp_cost<StampMode::kOff, false>, {blocks, kStampThreads, sizeof(StampCostShared)});
}

void launch_stamp_cost_absent(const StampCostInput& input, std::uint32_t blocks, bool programmatic,
                              cudaStream_t stream) {
    launch(stamp_cost<StampMode::kOff, false>, {blocks, kStampThreads, sizeof(StampCostShared), programmatic}, stream,
           input);
}

}  // namespace musetrace::probe
