// How fast all SMs read global memory, by the bytes that each keeps on its way.
#include <algorithm>

#include "probe/bulk_stream.cuh"
#include "probe/device_probe.h"
#include "probe/graph_timer.h"
#include "probe/random_words.h"
#include "probe/stream_once.cuh"

namespace musetrace::probe {

Times measure_streams(const std::vector<std::uint32_t>& in_flight, std::size_t bytes, std::uint32_t rounds) {
    const auto fits = [](std::uint32_t pieces) { return pieces >= 1 && pieces <= kMostPieces; };
    require(std::all_of(in_flight.begin(), in_flight.end(), fits), "1 to 12 pieces can be in flight");
    require(bytes >= kPieceBytes && rounds >= 1 && rounds <= 1000, "choose 16384 bytes and more, 1 to 1000 rounds");
    const LaunchShape shape{num_sms(), abi::kLanesPerWarp, sizeof(PieceRing)};
    const DeviceBuffer<char> data(bytes / kPieceBytes * kPieceBytes);
    fill_random(data.get(), data.count());
    const Report report;
    prepare(stream_once, shape);
    GraphTimer timer;
    for (const std::uint32_t pieces : in_flight) {
        timer.add(1, [&](std::uint32_t, cudaStream_t stream) {
            launch(stream_once, shape, stream, data.get(), data.count() / kPieceBytes, pieces, report.get());
        });
    }
    const Times times = per_launch(timer.interleaved_us(rounds), 1);
    report.check_all();
    return times;
}

}  // namespace musetrace::probe
