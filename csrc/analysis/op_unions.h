// How long each block works at each op in a launch: the union of the op's busy spans.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/instance_spans.h"

namespace musetrace::analysis {

// One entry for each (instance, row) that has a span, in that order.
struct OpUnions {
    std::vector<std::int64_t> instance;
    std::vector<std::int64_t> row;
    std::vector<std::int64_t> covered_ns;
    std::vector<std::int64_t> pieces;
};

// `row_of_job` has 2^16 entries, below `rows`; negative: left out. One list for each thread that worked, in order.
std::vector<OpUnions> op_unions(const InstanceSpans& spans, const std::int64_t* row_of_job, std::size_t rows);

}  // namespace musetrace::analysis
