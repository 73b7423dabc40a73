#include "analysis/job_axis.h"

#include "analysis/parallel.h"

namespace musetrace::analysis {
namespace {

constexpr std::size_t kJobs = 1 << 16;

}  // namespace

void by_job(const std::vector<RankSpans>& ranks, std::int64_t from_ns, const JobAxis& axis) {
    std::vector<std::vector<std::int64_t>> next(ranks.size(), std::vector<std::int64_t>(kJobs, 0));
    const std::size_t parts = part_count(ranks.size(), 1);
    for_parts(ranks.size(), parts, [&](std::size_t, std::size_t first, std::size_t past) {
        for (std::size_t rank = first; rank < past; ++rank) {
            for (std::size_t i = 0; i < ranks[rank].size; ++i) ++next[rank][std::size_t(ranks[rank].job[i])];
        }
    });
    std::int64_t place = 0;
    for (std::size_t job = 0; job < kJobs; ++job) {
        axis.first[job] = place;
        for (std::vector<std::int64_t>& of_rank : next) {
            const std::int64_t spans = of_rank[job];
            of_rank[job] = place;
            place += spans;
        }
    }
    axis.first[kJobs] = place;
    for_parts(ranks.size(), parts, [&](std::size_t, std::size_t first, std::size_t past) {
        for (std::size_t rank = first; rank < past; ++rank) {
            const RankSpans& spans = ranks[rank];
            for (std::size_t i = 0; i < spans.size; ++i) {
                const std::int64_t at = next[rank][std::size_t(spans.job[i])]++;
                axis.begin[at] = spans.begin[i] - from_ns;
                axis.end[at] = spans.end[i] - from_ns;
                axis.rank[at] = std::int32_t(rank);
                axis.launch[at] = std::int32_t(spans.launch_id[spans.launch[i]]);
                axis.block[at] = std::int32_t(spans.block[i]);
                axis.iteration[at] = std::int32_t(spans.iteration[i]);
            }
        }
    });
}

}  // namespace musetrace::analysis
