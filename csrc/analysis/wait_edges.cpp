// Waits and the spans that they waited for.
#include <algorithm>
#include <tuple>

#include "analysis/span_graph.h"

namespace musetrace::analysis {
namespace {

constexpr Time kNever = std::numeric_limits<Time>::max();

}  // namespace

// The producers of one wait job, in groups of what a wait may be matched with, each by end; and what its waits show.
struct SpanGraph::WaitJob {
    std::vector<Place> producers;
    std::vector<std::int64_t> group;  // of each of the producers
    std::vector<Place> place;         // of a span among them
    std::size_t first_link = 0;
    Time shortest = kNever;      // time from where both the wait had begun and its producer had ended
    Time shortest_way = kNever;  // the same of waits whose producer was not ready
};

namespace {

std::int64_t group_of(const LaunchSpans& spans, const JobFacts& facts, Place span) {
    const std::int64_t whose = facts.scope == Scope::kBlock  ? spans.block[span]
                               : facts.scope == Scope::kRank ? spans.rank[span]
                                                             : 0;
    return whose * 65536 + (facts.iterates ? spans.iteration[span] : 0);
}

}  // namespace

void SpanGraph::link_waits(const LaunchSpans& spans, Time tick_ns) {
    shortest_.assign(jobs_.size(), kNever);
    for (Place span = 0; span < static_cast<Place>(size_); ++span) {
        ends_[span].own = own_time(span);
        Time& shortest = shortest_[static_cast<std::size_t>(job_[span])];
        shortest = std::min(shortest, own_time(span));
    }
    std::vector<std::vector<Place>> waits(jobs_.size());
    for (Place span = 0; span < static_cast<Place>(size_); ++span) {
        if (spans.producer[span] != kNone) waits[static_cast<std::size_t>(job_[span])].push_back(span);
    }
    for (std::size_t job = 0; job < waits.size(); ++job) {
        if (waits[job].empty()) continue;
        WaitJob of_job = sort_producers(spans, static_cast<Place>(job));
        measure(spans, waits[job], of_job, tick_ns);
        for (const Place wait : waits[job]) link_wait(spans, of_job, wait, tick_ns);
    }
}

// Later for certain is what is a tick later.
bool SpanGraph::was_ready(Place wait, Place producer, Time tick_ns) const {
    return end_[producer] - begin_[wait] < std::max<Time>(tick_ns, 1);
}

// What the waits of a job show of their own cost.
void SpanGraph::measure(const LaunchSpans& spans, const std::vector<Place>& waits, WaitJob& of_job,
                        Time tick_ns) const {
    for (const Place wait : waits) {
        const Place producer = spans.producer[wait];
        if (is_for_piece(spans, wait)) continue;
        const Time since = spans.under_way[wait] ? begin_[wait] : std::max(begin_[wait], end_[producer]);
        const Time own = std::max<Time>(end_[wait] - since, 0);
        of_job.shortest = std::min(of_job.shortest, own);
        if (!spans.under_way[wait] && !was_ready(wait, producer, tick_ns)) {
            of_job.shortest_way = std::min(of_job.shortest_way, own);
        }
    }
}

// A wait that ended while its producer was under way was for a piece of it. But a loader that had long been at it is
// ahead: the piece lay ready, and the loader itself waits for room.
bool SpanGraph::is_for_piece(const LaunchSpans& spans, Place wait) const {
    if (!spans.under_way[wait]) return false;
    const Place producer = spans.producer[wait];
    return facts(producer).span_class != SpanClass::kLoad || 2 * own_time(wait) >= end_[wait] - begin_[producer];
}

// Whether what follows a wait, which is not for pieces, waits itself for what ends later: a load does, and behind a
// stop what takes twice as long as the quickest of its job, or as long as that behind the last of these ends alone.
bool SpanGraph::leaves_some(Place wait, Place taker, Place last) const {
    if (facts(taker).span_class == SpanClass::kLoad) return true;
    const Time quickest = shortest_[static_cast<std::size_t>(job_[taker])];
    if (facts(wait).scope != Scope::kRanks) return false;
    return end_[taker] - end_[last] >= quickest || own_time(taker) > 2 * quickest;
}

// The first k of a group by end are one node: a wait for the last of them is a wait for them all.
SpanGraph::WaitJob SpanGraph::sort_producers(const LaunchSpans& spans, Place job) {
    const JobFacts& facts = jobs_[static_cast<std::size_t>(job)];
    WaitJob found;
    for (Place span = 0; span < static_cast<Place>(size_); ++span) {
        if (job_[span] == facts.awaits) found.producers.push_back(span);
    }
    const auto key = [&](Place span) { return std::make_tuple(group_of(spans, facts, span), end_[span], span); };
    std::sort(found.producers.begin(), found.producers.end(), [&](Place a, Place b) { return key(a) < key(b); });
    found.place.assign(size_, kNone);
    found.first_link = links_.size();
    for (std::size_t at = 0; at < found.producers.size(); ++at) {
        const Place span = found.producers[at];
        found.place[span] = static_cast<Place>(at);
        found.group.push_back(group_of(spans, facts, span));
        const bool follows = at > 0 && found.group[at] == found.group[at - 1];
        links_.push_back({follows ? link_of(links_.size() - 1) : kNone, span});
    }
    return found;
}

void SpanGraph::link_wait(const LaunchSpans& spans, const WaitJob& of_job, Place wait, Time tick_ns) {
    End& end = ends_[wait];
    const Place producer = spans.producer[wait];
    const Time own = of_job.shortest == kNever ? 0 : std::min(of_job.shortest, own_time(wait));
    if (spans.under_way[wait]) {
        if (is_for_piece(spans, wait)) {
            end.awaited = begin_of(producer);
            end.way = end_[wait] - begin_[producer];
            // Below 0 it is what two clocks are apart, and no time of the producer.
            end.way_of = end.way > 0 ? job_[producer] : kNone;
            end.own = own;
            end.step = Step::kPiece;
            end.producer = producer;
        }
        if (facts(producer).span_class == SpanClass::kLoad) {
            link_ring(producer, wait);
        } else {
            link_stream(spans, of_job, wait);
        }
        return;
    }
    end.awaited = link_of(of_job.first_link + static_cast<std::size_t>(of_job.place[producer]));
    end.producer = producer;
    link_stream(spans, of_job, wait);
    if (!was_ready(wait, producer, tick_ns)) {
        end.way = end_[wait] - end_[producer];
        end.own = own;
        end.step = Step::kWay;
    } else {  // it was ready: what the wait took is its own
        const Time way = of_job.shortest_way == kNever ? 0 : of_job.shortest_way;
        end.way = std::min(way, end_[wait] - end_[producer]);
    }
}

// What follows a wait for a piece takes the others as they come: it ends behind the last of them.
void SpanGraph::link_stream(const LaunchSpans& spans, const WaitJob& of_job, Place wait) {
    const Place taker = next_in_lane_[wait];
    if (taker == kNone || begin_[taker] < end_[wait] || facts(taker).span_class == SpanClass::kWait ||
        ends_[taker].awaited != kNone)
        return;
    const std::int64_t group = of_job.group[static_cast<std::size_t>(of_job.place[spans.producer[wait]])];
    const auto& list = of_job.producers;
    auto at = static_cast<std::size_t>(of_job.place[spans.producer[wait]]);
    while (at + 1 < list.size() && of_job.group[at + 1] == group && end_[list[at + 1]] <= end_[taker]) ++at;
    while (end_[list[at]] > end_[taker]) {
        if (at == 0 || of_job.group[at - 1] != group) return;
        --at;
    }
    const Place last = list[at];
    if (end_[last] <= begin_[taker] || (!spans.under_way[wait] && !leaves_some(wait, taker, last))) return;
    End& end = ends_[taker];
    end.awaited = link_of(of_job.first_link + at);
    end.producer = last;
    end.way = end_[taker] - end_[last];
    end.way_of = job_[taker];
    end.own = std::min(own_time(taker), end.way);
    end.through = job_[wait];
    end.step = Step::kLastPiece;
}

// A load that goes on while what it is for works is ahead of it, and waits for room: it ends as long before the end of
// that work as it did.
void SpanGraph::link_ring(Place load, Place wait) {
    Place user = next_in_lane_[wait];
    while (user != kNone && facts(user).span_class == SpanClass::kWait) user = next_in_lane_[user];
    if (user == kNone || begin_[user] >= end_[load] || end_[user] < end_[load]) return;
    End& end = ends_[load];
    if (end.producer != kNone && end_[end.producer] >= end_[user]) return;
    end = End{};
    end.awaited = end_of(user);
    end.producer = user;
    end.way = end_[load] - end_[user];
    end.own = 0;
}

}  // namespace musetrace::analysis
