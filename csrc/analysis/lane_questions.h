// What lies in a window of a timeline: how many spans, which, how long they are, which of them are looked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "analysis/lane_spans.h"

namespace musetrace::analysis {

struct LaneCount {
    std::int64_t spans = 0;  // with those that have a flag
    std::int64_t flagged = 0;
};

template <typename Time>
LaneCount count_spans(const std::vector<LaneSpans<Time>>& lanes, const LaneWindow& window) {
    LaneCount count;
    for (const LaneSpans<Time>& of : lanes) {
        for_inside(of, window, [&](std::int64_t i, std::int64_t) {
            ++count.spans;
            count.flagged += of.flag[i] != 0;
        });
    }
    return count;
}

// Spans by their place in the lanes of one of several steps.
struct SpanPlaces {
    std::vector<std::int64_t> source;
    std::vector<std::int64_t> index;
    std::vector<std::int64_t> row;
};

template <typename Time>
SpanPlaces spans_inside(const std::vector<LaneSpans<Time>>& lanes, const LaneWindow& window) {
    SpanPlaces found;
    for (std::size_t source = 0; source < lanes.size(); ++source) {
        for_inside(lanes[source], window, [&](std::int64_t i, std::int64_t row) {
            found.source.push_back(std::int64_t(source));
            found.index.push_back(i);
            found.row.push_back(row);
        });
    }
    return found;
}

// How often each length occurs among the sound spans of a group: lengths grow, those of group g stand at
// [first[g], first[g + 1]). `inside` is by group the time of these spans that lies in the window.
struct LengthCounts {
    std::vector<std::int64_t> first;
    std::vector<std::int64_t> length;
    std::vector<std::int64_t> count;
    std::vector<std::int64_t> inside;
    std::int64_t flagged = 0;
};

// Counts the lengths of one group: short ones in a table, the others in a list.
class LengthCounter {
  public:
    void add(std::int64_t length) {
        if (length >= kTable) return longer_.push_back(length);
        if (table_.empty()) table_.assign(kTable, 0);
        ++table_[std::size_t(length)];
    }

    void tell(LengthCounts& found) {
        const auto told = [&](std::int64_t length, std::int64_t count) {
            found.length.push_back(length);
            found.count.push_back(count);
        };
        for (std::size_t length = 0; length < table_.size(); ++length) {
            if (table_[length] != 0) told(std::int64_t(length), table_[length]);
        }
        std::sort(longer_.begin(), longer_.end());
        for (auto one = longer_.begin(); one != longer_.end();) {
            const auto past = std::upper_bound(one, longer_.end(), *one);
            told(*one, past - one);
            one = past;
        }
    }

  private:
    static constexpr std::int64_t kTable = 1 << 16;

    std::vector<std::int64_t> table_;
    std::vector<std::int64_t> longer_;
};

// `group_of_job` has 2^16 entries below `groups`.
template <typename Time>
LengthCounts count_lengths(const std::vector<LaneSpans<Time>>& lanes, const LaneWindow& window,
                           const std::uint16_t* group_of_job, std::size_t groups) {
    LengthCounts found;
    found.inside.assign(groups, 0);
    std::vector<LengthCounter> counters(groups);
    for (const LaneSpans<Time>& of : lanes) {
        for_inside(of, window, [&](std::int64_t i, std::int64_t) {
            if (of.flag[i] != 0) {
                ++found.flagged;
                return;
            }
            const std::int64_t length = std::int64_t(of.dur[i]);
            const std::int64_t begin = of.base_ns + std::int64_t(of.begin[i]);
            const std::size_t group = group_of_job[of.job[i]];
            counters[group].add(length);
            found.inside[group] +=
                std::max<std::int64_t>(std::min(begin + length, window.to_ns) - std::max(begin, window.from_ns), 0);
        });
    }
    for (LengthCounter& counter : counters) {
        found.first.push_back(std::int64_t(found.length.size()));
        counter.tell(found);
    }
    found.first.push_back(std::int64_t(found.length.size()));
    return found;
}

// Which spans are looked for: sound ones of wanted jobs, with a length in [least_ns, most_ns].
struct SpanSearch {
    const std::uint8_t* wanted_job;  // 2^16
    std::int64_t least_ns;
    std::int64_t most_ns;
    bool longest_first;  // else the earliest
    std::size_t most_hits;
};

// Where a hit stands among others: by length where the longest come first, by begin, by place in the lanes.
struct SpanHit {
    std::int64_t shorter;  // minus the length, or 0
    std::int64_t begin_ns;
    std::int64_t index;

    bool operator<(const SpanHit& other) const {
        return std::tie(shorter, begin_ns, index) < std::tie(other.shorter, other.begin_ns, other.index);
    }
};

// All that were found are counted, and those behind `after`, of which the first are hits, in order.
struct SpanHits {
    std::int64_t total = 0;
    std::int64_t behind = 0;
    std::vector<SpanHit> hits;
};

template <typename Time>
SpanHits search_spans(const LaneSpans<Time>& lanes, const LaneWindow& window, const SpanSearch& search,
                      const SpanHit& after) {
    SpanHits found;
    for_inside(lanes, window, [&](std::int64_t i, std::int64_t) {
        const std::int64_t length = std::int64_t(lanes.dur[i]);
        if (lanes.flag[i] != 0 || !search.wanted_job[lanes.job[i]]) return;
        if (length < search.least_ns || length > search.most_ns) return;
        ++found.total;
        const SpanHit hit{search.longest_first ? -length : 0, lanes.base_ns + std::int64_t(lanes.begin[i]), i};
        if (!(after < hit)) return;
        ++found.behind;
        if (found.hits.size() == search.most_hits) {
            if (!(hit < found.hits.front())) return;
            std::pop_heap(found.hits.begin(), found.hits.end());
            found.hits.pop_back();
        }
        found.hits.push_back(hit);
        std::push_heap(found.hits.begin(), found.hits.end());
    });
    std::sort_heap(found.hits.begin(), found.hits.end());
    return found;
}

}  // namespace musetrace::analysis
