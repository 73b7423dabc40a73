// Graphs of the stream with stamps, each way of keeping them beside the others.
#include <iterator>
#include <stdexcept>
#include <string>

#include "probe/device_probe.h"
#include "probe/graph_timer.h"
#include "probe/random_words.h"
#include "probe/stamp_cost.cuh"

namespace musetrace::probe {
namespace {

constexpr std::uint32_t kCases = std::size(kStampCases);
// So much data that no launch finds in L2 what an earlier one read.
constexpr std::uint32_t kDataOfLaunches = 8;

// A region for each case, one behind the other.
class Regions {
  public:
    explicit Regions(std::uint32_t blocks) : bytes_(stamp_region_bytes(blocks)), memory_(kCases * bytes_) {
        for (std::uint32_t which = 0; which < kCases; ++which) {
            const std::vector<char> empty = empty_stamp_region(static_cast<StampCase>(which), blocks);
            write_bytes(of(which), empty.data(), bytes_, "copying to the device");
        }
    }
    char* of(std::uint32_t which) const { return memory_.get() + which * bytes_; }

    // Throws when a case did not do what its figures are said to be of.
    void check_all() const {
        const std::vector<char> all = memory_.to_host();
        for (std::uint32_t which = 0; which < kCases; ++which) {
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(which * bytes_);
            if (is_stamped(static_cast<StampCase>(which), {begin, begin + static_cast<std::ptrdiff_t>(bytes_)}))
                continue;
            throw std::runtime_error("the case '" + std::string(kStampCases[which]) +
                                     "' has other stamps than it should, so its times count for nothing");
        }
    }

  private:
    std::size_t bytes_;
    DeviceBuffer<char> memory_;
};

}  // namespace

Times measure_stamp_costs(std::uint32_t launches, std::uint32_t rounds, bool programmatic, bool writes_output) {
    require(launches >= 1 && launches <= 1000 && rounds >= 1 && rounds <= 1000, "choose 1 to 1000 launches and rounds");
    const std::uint32_t blocks = num_sms();
    const std::size_t launch_bytes = std::size_t{blocks} * kStages * kStageBytes;
    const DeviceBuffer<char> data(launch_bytes * kDataOfLaunches);
    fill_random(data.get(), data.count());
    const Regions regions(blocks);
    const DeviceBuffer<uint4> out(std::size_t{blocks} * kConsumers * abi::kLanesPerWarp);
    const Report report;
    prepare_stamp_cost(blocks);
    prepare_stamp_cost_absent(blocks);
    GraphTimer timer;
    for (std::uint32_t which = 0; which < kCases; ++which) {
        timer.add(launches, [&](std::uint32_t i, cudaStream_t stream) {
            const StampCostInput input{data.get() + i % kDataOfLaunches * launch_bytes, regions.of(which),
                                       writes_output ? out.get() : nullptr, false, report.get()};
            if (which == 0) {
                launch_stamp_cost_absent(input, blocks, programmatic, stream);
            } else {
                launch_stamp_cost(static_cast<StampCase>(which), input, blocks, programmatic, stream);
            }
        });
    }
    const Times times = per_launch(timer.interleaved_us(rounds), launches);
    report.check_all();
    regions.check_all();
    return times;
}

}  // namespace musetrace::probe
