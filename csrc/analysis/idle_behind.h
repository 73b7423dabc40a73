// The idle time from the end of each busy op to the end of the launch, by block. musetrace/analysis/idle_after.py has
// the rules.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/instance_spans.h"

namespace musetrace::analysis {

// Row of an entry that is about the whole launch.
constexpr std::int64_t kWholeLaunch = -1;

// One entry for each instance that counts, from its begin, and one for each row that is busy in it, from its end:
// the time to the end of the launch, the idle part of it, and of how many differences of stamps that is made.
struct IdleBehind {
    std::vector<std::int64_t> instance;
    std::vector<std::int64_t> row;
    std::vector<std::int64_t> behind_ns;
    std::vector<std::int64_t> idle_ns;
    std::vector<std::int64_t> differences;
};

// `row_of_job` has 2^16 entries, below `rows`; negative: not busy. One list for each thread that worked, in order.
std::vector<IdleBehind> idle_behind(const InstanceSpans& spans, const LaunchColumns& launches,
                                    const std::int64_t* instances, std::size_t count, const std::int64_t* row_of_job,
                                    std::size_t rows);

}  // namespace musetrace::analysis
