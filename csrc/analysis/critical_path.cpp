// What held up the end of a launch: from the last end back, from each event to the last thing that it depends on.
#include <algorithm>

#include "analysis/span_graph.h"

namespace musetrace::analysis {

// Where the walk is: in `span`, at `now`; it never goes forward, and not beyond the begin of the launch.
struct SpanGraph::Walk {
    Place span;
    bool in_span;  // else at its begin
    Time now, stop;
    std::vector<PathStep> steps;

    void go(Step step, Time to, Place cause) {
        const Time until = now;
        now = std::max(std::min(now, to), stop);
        if (now < until || cause != kNone) steps.push_back({step, span, cause, now, until});
    }
    void enter(Place other) {
        span = other;
        in_span = true;
    }
};

// From within a span, or its end, to its begin or to what it waited for.
void SpanGraph::leave_end(Walk& walk) const {
    const Place span = walk.span;
    const End& end = ends_[span];
    const bool at_end = walk.now >= end_[span];
    if (at_end && (end.step == Step::kPiece || end.step == Step::kWay)) {
        const bool is_way = end.step == Step::kWay;
        walk.go(end.step, is_way ? end_[end.producer] : walk.now, end.producer);
        walk.enter(end.producer);
        return;
    }
    const Time piece = walk.now - end.way;
    if (end.step == Step::kLastPiece && piece > begin_[span] && piece > begin_[end.producer] &&
        (end.way > 0 || at_end)) {
        walk.go(Step::kLastPiece, piece, end.producer);
        walk.enter(end.producer);
        return;
    }
    walk.go(Step::kOwn, begin_[span], kNone);
    walk.in_span = false;
}

// From the begin of a span to what came before; false at the begin of the launch.
bool SpanGraph::leave_begin(Walk& walk) const {
    const Begin& begin = begins_[walk.span];
    const Node last = begin.other != kNone ? begin.other : begin.lane;
    if (begin.is_launch) {
        walk.go(Step::kLaunchWay, begin.after, kNone);
        walk.go(Step::kBefore, walk.stop, kNone);
        return false;
    }
    if (last == kNone) {
        walk.go(Step::kHead, walk.stop, kNone);
        return false;
    }
    const Place cause = last / 2;
    if (last % 2 == 0) {  // within a span that goes on
        walk.span = cause;
        walk.go(Step::kOwn, begin_[cause], kNone);
        return true;
    }
    walk.go(begin.is_hand_off ? Step::kHandOff : Step::kGap, end_[cause], begin.is_hand_off ? cause : kNone);
    walk.enter(cause);
    return true;
}

std::vector<PathStep> SpanGraph::path(Place rank, Time begin_ns, Time end_ns) const {
    Place last = kNone;
    for (Place span = 0; span < static_cast<Place>(size_); ++span) {
        if (rank != kNone && rank_[span] != rank) continue;
        if (last == kNone || end_[span] > end_[last]) last = span;
    }
    Walk walk{last, true, end_ns, begin_ns, {}};
    if (last == kNone) {
        walk.go(Step::kHead, begin_ns, kNone);
        return walk.steps;
    }
    walk.go(Step::kTail, end_[last], kNone);
    // A path passes each event once, and a piece of a span besides; times do not grow, so it ends.
    for (std::size_t most = 4 * size_ + 4; most > 0 && walk.now > walk.stop; --most) {
        if (walk.in_span) {
            leave_end(walk);
        } else if (!leave_begin(walk)) {
            break;
        }
    }
    walk.go(Step::kHead, begin_ns, kNone);
    return walk.steps;
}

}  // namespace musetrace::analysis
