// What each block did of each op in a launch, from the earliest begin to the latest end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/instance_spans.h"

namespace musetrace::analysis {

// One entry for each (row, launch, block) that has a span, in that order.
struct OpExtents {
    std::vector<std::int64_t> row;
    std::vector<std::int64_t> launch;
    std::vector<std::int64_t> block;
    std::vector<std::int64_t> begin;
    std::vector<std::int64_t> end;
};

// `row_of_job` has 2^16 entries, below `rows`; spans of negative ones are left out.
OpExtents op_extents(const SpanColumns& spans, const std::int64_t* row_of_job, std::size_t rows, std::size_t launches,
                     std::size_t blocks);

}  // namespace musetrace::analysis
