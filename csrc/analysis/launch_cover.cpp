#include "analysis/launch_cover.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace musetrace::analysis {
namespace {

constexpr std::int64_t kWhole = 255;

std::int64_t share_of(std::int64_t covered, std::int64_t wall) {
    if (wall <= 0) return 1;
    return std::clamp<std::int64_t>(std::int64_t(std::ceil(double(covered) * double(kWhole) / double(wall))), 1,
                                    kWhole);
}

// Adds up one instance at a time.
class CoverOfInstance {
  public:
    explicit CoverOfInstance(const RasterJobs& jobs) : jobs_(jobs), time_(jobs.places, 0), seen_(jobs.places, 0) {}

    std::int64_t packed(const InstanceSpan* first, const InstanceSpan* past, std::int64_t wall) {
        std::array<std::int64_t, kCoverClasses> covered{}, covered_to{};
        for (const InstanceSpan* span = first; span != past; ++span) {
            const std::int16_t place = jobs_.place_of_job[span->job];
            if (place < 0) continue;
            if (!seen_[std::size_t(place)]) places_.push_back(std::size_t(place));
            seen_[std::size_t(place)] = 1;
            time_[std::size_t(place)] += span->end - span->begin;
            const std::size_t of = jobs_.class_of[place];
            covered[of] += std::max<std::int64_t>(span->end - std::max(span->begin, covered_to[of]), 0);
            covered_to[of] = std::max(covered_to[of], span->end);
        }
        return taken(covered, wall);
    }

  private:
    std::int64_t taken(const std::array<std::int64_t, kCoverClasses>& covered, std::int64_t wall) {
        std::array<std::size_t, kCoverClasses> most;
        most.fill(jobs_.places);
        for (const std::size_t place : places_) {
            std::size_t& best = most[jobs_.class_of[place]];
            const bool first = best == jobs_.places;
            if (first || time_[place] > time_[best] || (time_[place] == time_[best] && place < best)) best = place;
        }
        std::uint64_t packed = 0;
        for (std::size_t of = 0; of < kCoverClasses; ++of) {
            const bool some = most[of] < jobs_.places;
            const std::uint64_t op = some ? jobs_.op_of[most[of]] : kNoOp;
            const std::uint64_t share = some ? std::uint64_t(share_of(covered[of], wall)) : 0;
            packed |= (op | share << 8) << (16 * of);
        }
        for (const std::size_t place : places_) time_[place] = seen_[place] = 0;
        places_.clear();
        return std::int64_t(packed);
    }

    RasterJobs jobs_;
    std::vector<std::int64_t> time_;
    std::vector<std::uint8_t> seen_;
    std::vector<std::size_t> places_;
};

// A launch that lies in a window: its bins and its part of the first and the last of them.
struct LaunchBins {
    std::size_t launch;
    std::size_t first, last;
    std::int64_t begin, end;
};

std::vector<LaunchBins> launches_inside(const CoverLanes& of, const Bins& bins) {
    const std::int64_t from = bins.edge(0), to = bins.edge(bins.size());
    std::vector<LaunchBins> inside;
    const std::int64_t* reached = std::upper_bound(of.reach, of.reach + of.launches, from);
    for (std::size_t launch = std::size_t(reached - of.reach); launch < of.launches; ++launch) {
        if (of.begin[launch] >= to) break;
        const std::int64_t begin = std::max(of.begin[launch], from), end = std::min(of.end[launch], to);
        if (begin < end) inside.push_back({launch, bins.of(begin), bins.of(end - 1), begin, end});
    }
    return inside;
}

// The strips in the order of their classes.
struct StripOrder {
    std::array<std::size_t, kCoverClasses> strip;
    std::array<std::size_t, kCoverClasses> of_class;

    StripOrder(const RasterJobs& jobs, std::size_t ops) {
        for (std::size_t i = 0; i < kCoverClasses; ++i) strip[i] = i;
        const auto class_of = [&](std::size_t one) { return jobs.class_of[one * ops]; };
        std::stable_sort(strip.begin(), strip.end(),
                         [&](std::size_t a, std::size_t b) { return class_of(a) < class_of(b); });
        for (std::size_t i = 0; i < kCoverClasses; ++i) of_class[i] = class_of(strip[i]);
    }
};

// Adds a launch of a block. With `first_only` not what is of a later class than others of it: nobody would see that.
void add_launch(const LaunchBins& launch, std::uint64_t packed, std::size_t ops, const StripOrder& order,
                bool first_only, const Bins& bins, RasterCells& cells) {
    std::size_t seen = kMostClasses;
    for (std::size_t i = 0; i < kCoverClasses; ++i) {
        const std::size_t strip = order.strip[i], op = packed >> (16 * strip) & 0xff;
        if (op >= ops) continue;  // kNoOp
        if (first_only && seen < order.of_class[i]) return;
        seen = order.of_class[i];
        const std::int64_t share = std::int64_t(packed >> (16 * strip + 8) & 0xff);
        for (std::size_t bin = launch.first; bin <= launch.last; ++bin) {
            const std::int64_t time = std::min(launch.end, bins.edge(bin + 1)) - std::max(launch.begin, bins.edge(bin));
            cells.add(strip * ops + op, bin, time * share);
        }
    }
}

}  // namespace

LaunchCover launch_cover(const InstanceSpans& instances, const LaunchColumns& launches, const RasterJobs& jobs) {
    LaunchCover found;
    CoverOfInstance cover(jobs);
    for (std::size_t i = 0; i + 1 < instances.first.size(); ++i) {
        const InstanceSpan* first = instances.spans.data() + instances.first[i];
        const InstanceSpan* past = instances.spans.data() + instances.first[i + 1];
        if (first == past) continue;
        const std::size_t launch = i % launches.size;
        found.instance.push_back(std::int64_t(i));
        found.packed.push_back(cover.packed(first, past, launches.end[launch] - launches.begin[launch]));
    }
    return found;
}

void cover_raster(const std::vector<CoverLanes>& lanes, const RasterJobs& jobs, const Bins& bins, const RowGroups& rows,
                  const RasterOut& out) {
    const std::size_t ops = jobs.places / kCoverClasses;
    const StripOrder order(jobs, ops);
    std::vector<std::vector<LaunchBins>> inside;
    for (const CoverLanes& of : lanes) inside.push_back(launches_inside(of, bins));
    write_raster(jobs, bins, kWhole, rows, out, [&](std::int64_t row, RasterCells& cells) {
        for (std::size_t of = 0; of < lanes.size(); ++of) {
            const std::int64_t block = row - lanes[of].first_row;
            if (block < 0 || block >= lanes[of].blocks) continue;
            const std::int64_t* packed = lanes[of].packed + block * std::int64_t(lanes[of].launches);
            for (const LaunchBins& launch : inside[of]) {
                if (packed[launch.launch] != 0)
                    add_launch(launch, std::uint64_t(packed[launch.launch]), ops, order, !out.by_class, bins, cells);
            }
        }
    });
}

}  // namespace musetrace::analysis
