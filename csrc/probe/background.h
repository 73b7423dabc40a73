// The memory that blocks read in the background of a measurement.
#pragma once

#include "probe/bulk_stream.cuh"
#include "probe/device_buffer.h"
#include "probe/random_words.h"

namespace musetrace::probe {

class BackgroundMemory {
  public:
    // `in_flight` pieces for each block; `measuring` warps of the grid will say that they have finished.
    BackgroundMemory(std::uint32_t in_flight, std::uint32_t measuring)
        : data_(in_flight == 0 ? kPieceBytes : kBytes), in_flight_(in_flight), measuring_(measuring) {
        require(in_flight <= kMostPieces, "at most 12 pieces can be in flight");
        if (in_flight != 0) fill_random(data_.get(), data_.count());
    }
    Background get() const {
        return {data_.get(), data_.count() / kPieceBytes, in_flight_, measuring_, finished_.get()};
    }

  private:
    // Many times L2, read from begin to end and again.
    static constexpr std::size_t kBytes = std::size_t{1} << 30;

    DeviceBuffer<char> data_;
    DeviceBuffer<std::uint32_t> finished_{1};
    std::uint32_t in_flight_;
    std::uint32_t measuring_;
};

}  // namespace musetrace::probe
