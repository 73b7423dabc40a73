// Offsets of arrays that lie one behind the other, each from a line of 128 bytes on.
#pragma once

#include <cstdint>

namespace musetrace::megakernel {

class AlignedPlaces {
  public:
    constexpr std::uint64_t take(std::uint64_t bytes) {
        const std::uint64_t begin = end_;
        end_ += (bytes + 127) / 128 * 128;
        return begin;
    }
    // Of all of them.
    constexpr std::uint64_t bytes() const { return end_; }

  private:
    std::uint64_t end_ = 0;
};

}  // namespace musetrace::megakernel
