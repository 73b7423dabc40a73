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
        return from(std::min(std::size_t(double(time - edge_[0]) * scale_), edge_.size() - 2), time);
    }

    // The bin of a time that is near another bin.
    std::size_t from(std::size_t bin, std::int64_t time) const {
        while (edge_[bin] > time) --bin;
        while (edge_[bin + 1] <= time) ++bin;
        return bin;
    }

    std::size_t size() const { return edge_.size() - 1; }
    const std::int64_t* edges() const { return edge_.data(); }
    std::int64_t edge(std::size_t bin) const { return edge_[bin]; }
    std::int64_t length(std::size_t bin) const { return edge_[bin + 1] - edge_[bin]; }

  private:
    double scale_;
    std::vector<std::int64_t> edge_;
};

// Sums of time, of one row of cells after the other.
class RasterCells {
  public:
    // A row of cells is of at most so many rows of the timeline; time counts `scale` times.
    RasterCells(const RasterJobs& jobs, const Bins& bins, std::int64_t rows, std::int64_t scale)
        : jobs_(jobs),
          bins_(bins),
          scale_(scale),
          shift_(shift_for(double(bins.length(bins.size() - 1) + 1) * double(rows) * double(scale))),
          time_(jobs.places * bins.size(), 0),
          sums_(jobs.classes * bins.size()) {
        for (std::size_t place = 0; place < jobs.places; ++place) {
            adders_.push_back({kLastPlace - place, time_.data() + place * bins.size(),
                               sums_.data() + jobs.class_of[place] * bins.size()});
        }
    }
    RasterCells(const RasterCells&) = delete;  // the adders point into it
    RasterCells& operator=(const RasterCells&) = delete;

    void clear() {
        // A time of another turn counts as none.
        turn_ += std::uint64_t(1) << kTimeBits;
        if (turn_ == 0) std::fill(time_.begin(), time_.end(), 0);
        std::fill(sums_.begin(), sums_.end(), Sums{});
    }

    // A job in [begin, end), which begins in `bin`, of which what is before `covered_to` is covered already by others
    // of its class in its row.
    void add_span(std::size_t place, std::size_t bin, std::int64_t begin, std::int64_t end, std::int64_t covered_to) {
        const Adder adder = adders_[place];
        const std::uint64_t turn = turn_;
        const int shift = shift_;
        if (end <= begin) return adder.add(turn, bin, 0, 0);
        for (const std::int64_t* edge = bins_.edges() + bin + 1; begin < end; ++bin, ++edge) {
            const std::int64_t until = std::min(end, *edge);
            const std::int64_t new_from = std::min(std::max(covered_to, begin), until);
            adder.add(turn, bin, (until - begin) >> shift, (until - new_from) >> shift);
            begin = until;
        }
    }

    // Time of a job in a bin; all of it covers.
    void add(std::size_t place, std::size_t bin, std::int64_t time) {
        adders_[place].add(turn_, bin, time >> shift_, time >> shift_);
    }

    // The cell of a class at a bin, of so many rows. The share is rounded up: what is there is seen.
    Cell of_class(std::size_t of, std::size_t bin, std::int64_t rows) const {
        const Sums& sums = sums_[of * bins_.size() + bin];
        if (sums.most == 0) return {kNoOp, 0, kNoStrip};
        const std::size_t place = kLastPlace - (sums.most & kLastPlace);
        const double all = double(bins_.length(bin)) * double(rows) * double(scale_);
        // Half of the least difference above a whole number, so that rounding takes none of these up.
        const double share = (double(sums.covered << shift_) * 255.0 - 0.5) / all;
        return {jobs_.op_of[place], std::uint8_t(std::min(std::int64_t(share) + 1, std::int64_t(255))),
                jobs_.strip_of[place]};
    }

    // That of the first class that has something there.
    Cell of_first(std::size_t bin, std::int64_t rows) const {
        std::size_t of = 0;
        while (of + 1 < jobs_.classes && sums_[of * bins_.size() + bin].most == 0) ++of;
        return of_class(of, bin, rows);
    }

  private:
    static constexpr int kPlaceBits = 16, kTimeBits = 64 - kPlaceBits;
    static constexpr std::uint64_t kLastPlace = (1 << kPlaceBits) - 1;
    static constexpr double kMostJobs = 64;  // at once in a row, of an op

    struct Sums {
        std::uint64_t most = 0;  // the longest time of a place, and behind it what is left of the places; 0: nothing
        std::int64_t covered = 0;
    };

    // Adds to a place. Branches that nobody can foretell cost more than all else here, so there are none.
    struct Adder {
        std::uint64_t left_of_places;
        std::uint64_t* times;
        Sums* sums;

        void add(std::uint64_t turn, std::size_t bin, std::int64_t time, std::int64_t covered) const {
            const std::uint64_t known = times[bin] >> kTimeBits == turn >> kTimeBits ? times[bin] : turn;
            const std::uint64_t sum = times[bin] = known + std::uint64_t(time);
            // Sums only grow, so the largest so far is the largest in the end; among equals the first place counts.
            sums[bin].most = std::max(sums[bin].most, sum << kPlaceBits | left_of_places);
            sums[bin].covered += covered;
        }
    };

    // Times of hours are kept in larger steps, so that sums fit.
    static int shift_for(double most) {
        int shift = 0;
        while (std::ldexp(most * kMostJobs, -shift) > std::ldexp(1.0, kTimeBits - 1)) ++shift;
        return shift;
    }

    RasterJobs jobs_;
    const Bins& bins_;
    std::int64_t scale_;
    int shift_;
    std::uint64_t turn_ = 0;
    std::vector<std::uint64_t> time_;
    std::vector<Sums> sums_;
    std::vector<Adder> adders_;
};

}  // namespace musetrace::analysis
