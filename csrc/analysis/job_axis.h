// The spans of all ranks of a step, brought together by job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace musetrace::analysis {

// One rank's spans; `launch` is an index into `launch_id`. Times of the common axis.
struct RankSpans {
    const std::int64_t* begin;
    const std::int64_t* end;
    const std::int64_t* job;
    const std::int64_t* launch;
    const std::int64_t* block;
    const std::int64_t* iteration;
    const std::int64_t* launch_id;
    std::size_t size;
};

// Columns by job; of one job by rank, then as they came. The spans of job j are those from first[j] to first[j + 1];
// `first` has 2^16 + 1 entries.
struct JobAxis {
    std::int64_t* begin;
    std::int64_t* end;
    std::int32_t* rank;
    std::int32_t* launch;
    std::int32_t* block;
    std::int32_t* iteration;
    std::int64_t* first;
};

// Times are made relative to `from_ns`.
void by_job(const std::vector<RankSpans>& ranks, std::int64_t from_ns, const JobAxis& axis);

}  // namespace musetrace::analysis
