// Program order: what came before each span in its warp, its team and its block.
#include "analysis/span_graph.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace musetrace::analysis {
namespace {

// A gap of one of so many parts of a launch is long. Those of a layer kernel where warps only meet, or code is fetched,
// are 0.7 us of 100 at most; one in which a warp waits and does not stamp it, 6 us and more.
constexpr Time kShortGaps = 50;

// Runs of equal keys in a sorted list.
template <class Same, class Each>
void for_each_run(const std::vector<Place>& list, Same same, Each each) {
    for (std::size_t first = 0; first < list.size();) {
        std::size_t past = first + 1;
        while (past < list.size() && same(list[first], list[past])) ++past;
        each(std::vector<Place>(list.begin() + static_cast<std::ptrdiff_t>(first),
                                list.begin() + static_cast<std::ptrdiff_t>(past)));
        first = past;
    }
}

bool same_lane(const LaunchSpans& spans, Place one, Place other) {
    return spans.block[one] == spans.block[other] && spans.role[one] == spans.role[other] &&
           spans.warp[one] == spans.warp[other];
}

}  // namespace

SpanGraph::SpanGraph(const LaunchSpans& spans, std::vector<JobFacts> jobs, std::vector<RankWindow> ranks, Time tick_ns)
    : size_(spans.size),
      jobs_(std::move(jobs)),
      ranks_(std::move(ranks)),
      begin_(spans.begin, spans.begin + spans.size),
      end_(spans.end, spans.end + spans.size),
      job_(spans.job, spans.job + spans.size),
      rank_(spans.rank, spans.rank + spans.size),
      next_in_lane_(size_, kNone),
      begins_(size_),
      ends_(size_) {
    link_lanes(spans);
    link_waits(spans, tick_ns);
    put_in_order();
}

Time SpanGraph::time(Node node) const {
    const auto span = static_cast<std::size_t>(node) >= 2 * size_
                          ? links_[static_cast<std::size_t>(node) - 2 * size_].span
                          : node / 2;
    return static_cast<std::size_t>(node) < 2 * size_ && node % 2 == 0 ? begin_[span] : end_[span];
}

void SpanGraph::link_lanes(const LaunchSpans& spans) {
    if (size_ == 0) return;
    const Time length = *std::max_element(end_.begin(), end_.end()) - *std::min_element(begin_.begin(), begin_.end());
    std::vector<Place> sorted(size_);
    std::iota(sorted.begin(), sorted.end(), 0);
    const auto lane = [&](Place at) {
        return std::make_tuple(spans.block[at], spans.role[at], spans.warp[at], begin_[at], end_[at], at);
    };
    std::sort(sorted.begin(), sorted.end(), [&](Place one, Place other) { return lane(one) < lane(other); });
    for_each_run(
        sorted, [&](Place one, Place other) { return same_lane(spans, one, other); },
        [&](const std::vector<Place>& of_lane) { link_lane(of_lane); });
    for_each_run(
        sorted, [&](Place one, Place other) { return spans.block[one] == spans.block[other]; },
        [&](std::vector<Place> of_block) {
            std::sort(of_block.begin(), of_block.end(), [&](Place one, Place other) {
                return std::make_pair(end_[one], one) < std::make_pair(end_[other], other);
            });
            link_neighbours(spans, of_block, length);
        });
    for (std::size_t span = 0; span < size_; ++span) set_gap(static_cast<Place>(span));
}

// A span follows the one of its warp that ended last before it; where one goes on around it, that one's begin.
void SpanGraph::link_lane(const std::vector<Place>& lane) {
    std::vector<Place> open;
    Place last = kNone;
    for (std::size_t at = 0; at < lane.size(); ++at) {
        const Place span = lane[at];
        if (at + 1 < lane.size()) next_in_lane_[span] = lane[at + 1];
        const auto closed =
            std::partition(open.begin(), open.end(), [&](Place one) { return end_[one] > begin_[span]; });
        for (auto one = closed; one != open.end(); ++one) {
            if (last == kNone || end_[*one] >= end_[last]) last = *one;
        }
        open.erase(closed, open.end());
        Begin& begin = begins_[span];
        if (last != kNone) begin.lane = end_of(last);
        for (const Place one : open) {
            if (begin.lane == kNone || begin_[one] > time(begin.lane)) {
                begin.lane = begin_of(one);
                begin.gap_of = job_[one];
            }
        }
        open.push_back(span);
    }
}

// What else may have let a span begin: the last end of another warp of its team, behind that of its own. The first
// span of a warp has none of its own, and one behind a long gap waited for something that is not stamped: what ended
// last in its block handed its work over, whatever warp that is of.
void SpanGraph::link_neighbours(const LaunchSpans& spans, const std::vector<Place>& by_end, Time length) {
    for (const Place span : by_end) {
        Begin& begin = begins_[span];
        const bool is_first = begin.lane == kNone;
        const Time behind = is_first ? kNoTime : time(begin.lane);
        const bool any_warp = is_first || (begin_[span] - behind) * kShortGaps >= length;
        if (!any_warp && !facts(span).is_team) continue;
        auto at = std::upper_bound(by_end.begin(), by_end.end(), begin_[span],
                                   [&](Time until, Place one) { return until < end_[one]; });
        while (at != by_end.begin() && end_[*--at] > behind) {
            if (same_lane(spans, *at, span) || (!any_warp && spans.role[*at] != spans.role[span])) continue;
            begin.other = end_of(*at);
            begin.is_hand_off = true;
            break;
        }
    }
}

void SpanGraph::set_gap(Place span) {
    Begin& begin = begins_[span];
    const RankWindow& window = ranks_[static_cast<std::size_t>(rank_[span])];
    Time last = kNoTime;
    for (const Node node : {begin.lane, begin.other}) {
        if (node != kNone) last = std::max(last, time(node));
    }
    begin.after = kNoTime;
    begin.is_launch = window.before > window.begin && window.before <= begin_[span] && window.before > last;
    if (begin.is_launch) {
        begin.after = window.before;
    } else if (last == kNoTime) {
        begin.after = window.begin;
    }
    begin.gap = begin_[span] - std::max(last, begin.after);
    if (begin.lane == kNone || std::max(last, begin.after) != time(begin.lane)) begin.gap_of = kNone;
}

}  // namespace musetrace::analysis
