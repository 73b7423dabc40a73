// The cells of one row of a raster: by class of job and bin of time, which op takes most of it and how much is covered.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace musetrace::analysis {

constexpr std::uint8_t kNoOp = 255, kNoStrip = 255;

// One cell of a raster.
struct Cell {
    std::uint8_t op;
    std::uint8_t share;  // of its time, in 1 / 255
    std::uint8_t strip;
};

// What a job counts as: `place` in [0, places), of which `class_of` and `op_of` tell more; -1: it is not drawn.
struct RasterJobs {
    const std::int16_t* place_of_job;  // 2^16
    const std::uint8_t* class_of;
    const std::uint8_t* op_of;
    const std::uint8_t* strip_of;
    std::size_t places;
    std::size_t classes;
};

// Bins of whole ns: bin b is [edge(b), edge(b + 1)) where edge(b) = from + floor(b * (to - from) / width).
class Bins {
  public:
    // width is at most to - from, so that no bin is empty.
    Bins(std::int64_t from, std::int64_t to, std::size_t width)
        : scale_(double(width) / double(to - from)), edge_(width + 1) {
        const std::int64_t whole = (to - from) / std::int64_t(width), rest = (to - from) % std::int64_t(width);
        for (std::size_t bin = 0; bin <= width; ++bin) {
            edge_[bin] = from + std::int64_t(bin) * whole + std::int64_t(bin) * rest / std::int64_t(width);
        }
    }

    std::size_t of(std::int64_t time) const {
        std::size_t bin = std::min(std::size_t(double(time - edge_[0]) * scale_), edge_.size() - 2);
        while (edge_[bin] > time) --bin;
        while (edge_[bin + 1] <= time) ++bin;
        return bin;
    }

    std::size_t size() const { return edge_.size() - 1; }
    std::int64_t edge(std::size_t bin) const { return edge_[bin]; }
    std::int64_t length(std::size_t bin) const { return edge_[bin + 1] - edge_[bin]; }

  private:
    double scale_;
    std::vector<std::int64_t> edge_;
};

class RasterCells {
  public:
    // Time counts `scale` times.
    RasterCells(const RasterJobs& jobs, const Bins& bins, std::int64_t scale)
        : jobs_(jobs),
          bins_(bins),
          scale_(scale),
          time_(jobs.places * bins.size(), 0),
          best_(jobs.classes * bins.size()),
          covered_(jobs.classes * bins.size()),
          place_(jobs.classes * bins.size()) {
        clear();
    }

    void clear() {
        for (const std::size_t cell : touched_) time_[cell] = 0;
        touched_.clear();
        std::fill(best_.begin(), best_.end(), 0);
        std::fill(covered_.begin(), covered_.end(), 0);
        std::fill(place_.begin(), place_.end(), kNothing);
    }

    // Time of a job in a bin, of which `covered` is not covered by others of its class in its row.
    void add(std::size_t place, std::size_t bin, std::int64_t time, std::int64_t covered) {
        const std::size_t cell = place * bins_.size() + bin, at = jobs_.class_of[place] * bins_.size() + bin;
        if (time_[cell] == 0 && time > 0) touched_.push_back(cell);
        const std::int64_t sum = time_[cell] += time;
        covered_[at] += covered;
        // Sums only grow, so the largest so far is the largest in the end; among equals the first place counts.
        if (sum > best_[at] || (sum == best_[at] && place < place_[at])) {
            best_[at] = sum;
            place_[at] = std::uint16_t(place);
        }
    }

    // The cell of a class at a bin, of so many rows. The share is rounded up: what is there is seen.
    Cell of_class(std::size_t of, std::size_t bin, std::int64_t rows) const {
        const std::size_t at = of * bins_.size() + bin, place = place_[at];
        if (place == kNothing) return {kNoOp, 0, kNoStrip};
        const double all = double(bins_.length(bin)) * double(rows) * double(scale_);
        const double share = std::clamp(std::ceil(double(covered_[at]) * 255.0 / all), 1.0, 255.0);
        return {jobs_.op_of[place], std::uint8_t(share), jobs_.strip_of[place]};
    }

    // That of the first class that has something there.
    Cell of_first(std::size_t bin, std::int64_t rows) const {
        std::size_t of = 0;
        while (of + 1 < jobs_.classes && place_[of * bins_.size() + bin] == kNothing) ++of;
        return of_class(of, bin, rows);
    }

  private:
    static constexpr std::uint16_t kNothing = 0xffff;

    RasterJobs jobs_;
    const Bins& bins_;
    std::int64_t scale_;
    std::vector<std::int64_t> time_;
    std::vector<std::int64_t> best_;
    std::vector<std::int64_t> covered_;
    std::vector<std::uint16_t> place_;
    std::vector<std::size_t> touched_;
};

}  // namespace musetrace::analysis
