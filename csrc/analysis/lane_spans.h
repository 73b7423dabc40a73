// Spans of one step of one rank by row of a timeline, and what of a row lies in a window of time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace musetrace::analysis {

// Rows one after the other, each sorted by begin. Times are ns from the step's base, u32 or u64.
template <typename Time>
struct LaneSpans {
    const Time* begin;
    const Time* dur;
    const std::uint16_t* job;
    const std::uint8_t* flag;
    const std::int64_t* first;    // where each row begins, and the end of the last
    const std::int64_t* longest;  // the length of each row's longest span
    std::int64_t rows;
    std::int64_t first_row;  // the number of its first row in the timeline
    std::int64_t base_ns;    // the step's base, from the timeline's origin
};

// [from, to) in ns from the origin and rows [row_from, row_to).
struct LaneWindow {
    std::int64_t from_ns;
    std::int64_t to_ns;
    std::int64_t row_from;
    std::int64_t row_to;
};

// A span that has a length and some of it inside, or none and lies inside.
inline bool lies_inside(std::int64_t begin, std::int64_t length, std::int64_t from, std::int64_t to) {
    return begin < to && (length > 0 ? begin + length > from : begin >= from);
}

// Calls visit(index) for each span of a row that lies in [from_ns, to_ns), in order.
template <typename Time, typename Visit>
void for_inside(const LaneSpans<Time>& lanes, std::int64_t row, std::int64_t from_ns, std::int64_t to_ns, Visit visit) {
    const std::int64_t from = from_ns - lanes.base_ns, to = to_ns - lanes.base_ns;
    const auto before = [](Time time, std::int64_t limit) { return std::int64_t(time) < limit; };
    const std::int64_t first = lanes.first[row], past = lanes.first[row + 1];
    // What begins earlier than the longest span is long has ended.
    const Time* reached = std::lower_bound(lanes.begin + first, lanes.begin + past, from - lanes.longest[row], before);
    for (std::int64_t i = reached - lanes.begin; i < past && std::int64_t(lanes.begin[i]) < to; ++i) {
        if (lies_inside(std::int64_t(lanes.begin[i]), std::int64_t(lanes.dur[i]), from, to)) visit(i);
    }
}

// Calls visit(index, row of the timeline) for each span of a window.
template <typename Time, typename Visit>
void for_inside(const LaneSpans<Time>& lanes, const LaneWindow& window, Visit visit) {
    const std::int64_t row_from = std::max(window.row_from - lanes.first_row, std::int64_t(0));
    const std::int64_t row_to = std::min(window.row_to - lanes.first_row, lanes.rows);
    for (std::int64_t row = row_from; row < row_to; ++row) {
        for_inside(lanes, row, window.from_ns, window.to_ns, [&](std::int64_t i) { visit(i, lanes.first_row + row); });
    }
}

}  // namespace musetrace::analysis
