// What lies in a window of a timeline: how many spans, which, how long they are, which of them are looked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/lane_spans.h"
#include "analysis/parallel.h"

namespace musetrace::analysis {

constexpr std::size_t kLeastRows = 32;  // of a thread

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

// Counts lengths by group: short ones in a table, the others in lists.
class LengthSums {
  public:
    explicit LengthSums(std::size_t groups)
        : table_(groups * std::size_t(kTable), 0), longer_(groups), outside_(groups, 0) {}

    void add(std::size_t group, std::int64_t length) {
        if (length < kTable) {
            ++table_[group * std::size_t(kTable) + std::size_t(length)];
        } else {
            longer_[group].push_back(length);
        }
    }

    // So much of a length does not lie in the window.
    void add_outside(std::size_t group, std::int64_t time) { outside_[group] += time; }

    void add_flagged() { ++flagged_; }

    void add(const LengthSums& other) {
        for (std::size_t at = 0; at < table_.size(); ++at) table_[at] += other.table_[at];
        for (std::size_t group = 0; group < outside_.size(); ++group) {
            outside_[group] += other.outside_[group];
            longer_[group].insert(longer_[group].end(), other.longer_[group].begin(), other.longer_[group].end());
        }
        flagged_ += other.flagged_;
    }

    LengthCounts told() {
        LengthCounts found;
        found.first.push_back(0);
        for (std::size_t group = 0; group < outside_.size(); ++group) {
            const std::size_t first = found.length.size();
            tell(group, found);
            found.first.push_back(std::int64_t(found.length.size()));
            std::int64_t inside = -outside_[group];
            for (std::size_t at = first; at < found.length.size(); ++at) inside += found.length[at] * found.count[at];
            found.inside.push_back(inside);
        }
        found.flagged = flagged_;
        return found;
    }

  private:
    static constexpr std::int64_t kTable = 1 << 16;

    void tell(std::size_t group, LengthCounts& found) {
        const auto told = [&](std::int64_t length, std::int64_t count) {
            found.length.push_back(length);
            found.count.push_back(count);
        };
        for (std::int64_t length = 0; length < kTable; ++length) {
            const std::uint32_t count = table_[group * std::size_t(kTable) + std::size_t(length)];
            if (count != 0) told(length, std::int64_t(count));
        }
        std::vector<std::int64_t>& longer = longer_[group];
        std::sort(longer.begin(), longer.end());
        for (auto one = longer.begin(); one != longer.end();) {
            const auto past = std::upper_bound(one, longer.end(), *one);
            told(*one, past - one);
            one = past;
        }
    }

    std::vector<std::uint32_t> table_;
    std::vector<std::vector<std::int64_t>> longer_;
    std::vector<std::int64_t> outside_;
    std::int64_t flagged_ = 0;
};

template <typename Time>
void add_row(const LaneSpans<Time>& of, std::int64_t row, const LaneWindow& window, const std::uint16_t* group_of_job,
             LengthSums& sums) {
    const std::int64_t first = of.first[row], past = of.first[row + 1];
    if (first == past) return;
    const std::int64_t begins = of.base_ns + std::int64_t(of.begin[first]);
    const std::int64_t ends = of.base_ns + std::int64_t(of.begin[past - 1]) + of.longest[row];
    if (begins >= window.from_ns && ends < window.to_ns) {  // all of the row lies inside
        for (std::int64_t i = first; i < past; ++i) {
            const std::int64_t length = std::int64_t(of.dur[i]);
            if (of.flag[i] != 0) {
                sums.add_flagged();
            } else {
                sums.add(group_of_job[of.job[i]], length);
            }
        }
        return;
    }
    for_inside(of, row, window.from_ns, window.to_ns, [&](std::int64_t i) {
        if (of.flag[i] != 0) {
            sums.add_flagged();
            return;
        }
        const std::int64_t length = std::int64_t(of.dur[i]), begin = of.base_ns + std::int64_t(of.begin[i]);
        const std::int64_t inside = std::min(begin + length, window.to_ns) - std::max(begin, window.from_ns);
        sums.add(group_of_job[of.job[i]], length);
        sums.add_outside(group_of_job[of.job[i]], length - std::max<std::int64_t>(inside, 0));
    });
}

// `group_of_job` has 2^16 entries below `groups`.
template <typename Time>
LengthCounts count_lengths(const std::vector<LaneSpans<Time>>& lanes, const LaneWindow& window,
                           const std::uint16_t* group_of_job, std::size_t groups) {
    std::vector<std::pair<const LaneSpans<Time>*, std::int64_t>> rows;
    for (const LaneSpans<Time>& of : lanes) {
        const std::int64_t row_from = std::max(window.row_from - of.first_row, std::int64_t(0));
        const std::int64_t row_to = std::min(window.row_to - of.first_row, of.rows);
        for (std::int64_t row = row_from; row < row_to; ++row) rows.emplace_back(&of, row);
    }
    const std::size_t parts = part_count(rows.size(), kLeastRows);
    std::vector<std::optional<LengthSums>> sums(parts);
    for_parts(rows.size(), parts, [&](std::size_t part, std::size_t first, std::size_t past) {
        LengthSums& mine = sums[part].emplace(groups);
        for (std::size_t i = first; i < past; ++i) {
            add_row(*rows[i].first, rows[i].second, window, group_of_job, mine);
        }
    });
    for (std::size_t part = 1; part < parts; ++part) sums[0]->add(*sums[part]);
    return sums[0]->told();
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
