// An order in which each event stands behind what it depends on, and a replay in this order.
#include <algorithm>

#include "analysis/span_graph.h"

namespace musetrace::analysis {

SpanGraph::Node SpanGraph::dependence(Node node, int number) const {
    if (static_cast<std::size_t>(node) >= 2 * size_) {
        const Link& link = links_[static_cast<std::size_t>(node) - 2 * size_];
        return number == 0 ? link.before : end_of(link.span);
    }
    const Place span = node / 2;
    if (node % 2 == 0) return number == 0 ? begins_[span].lane : begins_[span].other;
    return number == 0 ? begin_of(span) : ends_[span].awaited;
}

// The second dependence of an event: what another warp did. Those within a warp, and in lists, close no circle.
void SpanGraph::drop(Node node) {
    const Place span = node / 2;
    if (node % 2 == 0) {
        begins_[span].other = kNone;
        begins_[span].is_hand_off = false;
        set_gap(span);
    } else {
        ends_[span] = End{};
        ends_[span].own = own_time(span);
    }
    ++dropped_;
}

// Depth first. A circle is opened at its last edge between warps, and what was met behind this edge is met again.
void SpanGraph::put_in_order() {
    enum : std::uint8_t { kNew, kOpen, kDone };
    struct Frame {
        Node node;
        int next;  // dependence to look at
    };
    std::vector<std::uint8_t> state(nodes(), kNew);
    std::vector<Frame> stack;
    const auto may_drop = [&](const Frame& frame) {
        return frame.next == 1 && static_cast<std::size_t>(frame.node) < 2 * size_;
    };
    order_.reserve(nodes());
    for (std::size_t root = 0; root < nodes(); ++root) {
        if (state[root] != kNew) continue;
        stack.push_back({static_cast<Node>(root), 0});
        state[root] = kOpen;
        while (!stack.empty()) {
            Frame& top = stack.back();
            if (top.next == 2) {
                state[static_cast<std::size_t>(top.node)] = kDone;
                order_.push_back(top.node);
                stack.pop_back();
                if (!stack.empty()) ++stack.back().next;
                continue;
            }
            const Node on = dependence(top.node, top.next);
            if (on == kNone || state[static_cast<std::size_t>(on)] == kDone) {
                ++top.next;
            } else if (state[static_cast<std::size_t>(on)] == kNew) {
                state[static_cast<std::size_t>(on)] = kOpen;
                stack.push_back({on, 0});
            } else {
                while (!may_drop(stack.back())) {
                    state[static_cast<std::size_t>(stack.back().node)] = kNew;
                    stack.pop_back();
                }
                drop(stack.back().node);
            }
        }
    }
}

std::vector<Time> SpanGraph::replay(const Change& change) const {
    const auto scaled = [&](Time time, Place job) {
        if (job == kNone) return time;
        const std::int64_t parts = change.parts[job];
        return parts == change.whole ? time : (time * parts + change.whole / 2) / change.whole;
    };
    std::vector<Time> at(nodes());
    std::vector<Time> last(ranks_.size(), kNoTime);
    for (const Node node : order_) {
        const auto place = static_cast<std::size_t>(node);
        if (place >= 2 * size_) {
            const Link& link = links_[place - 2 * size_];
            const Time before = link.before == kNone ? kNoTime : at[static_cast<std::size_t>(link.before)];
            at[place] = std::max(before, at[static_cast<std::size_t>(end_of(link.span))]);
            continue;
        }
        const Place span = node / 2;
        if (node % 2 == 0) {
            const Begin& begin = begins_[span];
            Time after = begin.after;
            for (const Node on : {begin.lane, begin.other}) {
                if (on != kNone) after = std::max(after, at[static_cast<std::size_t>(on)]);
            }
            at[place] = after + scaled(begin.gap, begin.gap_of);
            continue;
        }
        const End& end = ends_[span];
        const Time begin = at[place - 1];
        const bool is_wait = facts(span).span_class == SpanClass::kWait;
        if (is_wait && change.gone[job_[span]]) {
            at[place] = begin;
        } else {
            at[place] = begin + (is_wait ? end.own : scaled(end.own, job_[span]));
            if (end.awaited != kNone && (end.through == kNone || !change.gone[end.through])) {
                const Time way = scaled(end.way, end.way_of);
                at[place] = std::max(at[place], at[static_cast<std::size_t>(end.awaited)] + way);
            }
        }
        Time& of_rank = last[static_cast<std::size_t>(rank_[span])];
        of_rank = std::max(of_rank, at[place]);
    }
    return last;
}

}  // namespace musetrace::analysis
