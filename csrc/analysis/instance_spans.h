// The spans of one (rank, step), brought together by instance: a block of a launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace musetrace::analysis {

// Columns of one length, as the store's spans have them; times in ns from the step's base.
struct SpanColumns {
    const std::int64_t* begin;
    const std::int64_t* end;
    const std::int64_t* job;
    const std::int64_t* launch;  // index into the launches
    const std::int64_t* block;
    const std::int64_t* warp;
    std::size_t size;
};

struct LaunchColumns {
    const std::int64_t* begin;
    const std::int64_t* end;
    std::size_t size;
};

// Times in ns from the launch's begin, what reaches beyond the launch cut off.
struct InstanceSpan {
    std::int64_t begin;
    std::int64_t end;
    std::int32_t job;
    std::int32_t warp;
};

// The spans of instance i = block * launches + launch are spans[first[i]] up to spans[first[i + 1]], by begin;
// spans of equal begin stay in their order.
struct InstanceSpans {
    std::vector<std::size_t> first;
    std::vector<InstanceSpan> spans;

    InstanceSpans() = default;
    InstanceSpans(const SpanColumns& columns, const LaunchColumns& launches, std::size_t blocks)
        : first(blocks * launches.size + 1, 0), spans(columns.size) {
        const auto instance = [&](std::size_t i) {
            return std::size_t(columns.block[i]) * launches.size + std::size_t(columns.launch[i]);
        };
        for (std::size_t i = 0; i < columns.size; ++i) ++first[instance(i) + 1];
        for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
        std::vector<std::size_t> next(first.begin(), first.end() - 1);
        for (std::size_t i = 0; i < columns.size; ++i) {
            const std::int64_t from = launches.begin[columns.launch[i]];
            const std::int64_t wall = launches.end[columns.launch[i]] - from;
            const auto cut = [&](std::int64_t time) { return std::clamp<std::int64_t>(time - from, 0, wall); };
            spans[next[instance(i)]++] = {cut(columns.begin[i]), cut(columns.end[i]), std::int32_t(columns.job[i]),
                                          std::int32_t(columns.warp[i])};
        }
        const auto earlier = [](const InstanceSpan& a, const InstanceSpan& b) { return a.begin < b.begin; };
        for (std::size_t i = 0; i + 1 < first.size(); ++i) {
            const auto from = spans.begin() + std::ptrdiff_t(first[i]);
            const auto until = spans.begin() + std::ptrdiff_t(first[i + 1]);
            if (!std::is_sorted(from, until, earlier)) std::stable_sort(from, until, earlier);
        }
    }
};

}  // namespace musetrace::analysis
