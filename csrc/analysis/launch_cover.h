// What each block of a launch does most, by class of job, and how much of the launch that class covers.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/instance_spans.h"
#include "analysis/lane_raster.h"

namespace musetrace::analysis {

constexpr std::size_t kCoverClasses = 4;  // as many as fit into one number

// Of the instances that have spans. A number has for class c the op at bits 16 c (kNoOp where it has none), and at
// bits 16 c + 8 the share of the launch that is covered, in 1 / 255 rounded up, at least 1 where there is anything.
struct LaunchCover {
    std::vector<std::int64_t> instance;
    std::vector<std::int64_t> packed;
};

// Jobs have kCoverClasses classes.
LaunchCover launch_cover(const InstanceSpans& instances, const LaunchColumns& launches, const RasterJobs& jobs);

// Covers of one rank on a timeline: its launches by begin, and of each block a packed number for each; 0: no spans.
struct CoverLanes {
    const std::int64_t* begin;
    const std::int64_t* end;
    const std::int64_t* reach;  // the latest end up to and with this launch
    const std::int64_t* packed;
    std::size_t launches;
    std::int64_t blocks;
    std::int64_t first_row;
};

// The raster of a window: every launch evenly filled with what its blocks do most. Places are strip * ops + op.
void cover_raster(const std::vector<CoverLanes>& lanes, const RasterJobs& jobs, const Bins& bins, const RowGroups& rows,
                  const RasterOut& out);

}  // namespace musetrace::analysis
