// What the end of a launch depends on: spans as nodes, program order and waits as edges.
//
// Each span has two events, its begin and its end, and each event happens as soon as what it depends on has:
//
//   begin = the latest of { what came before it in its warp, in its team, the launch before } + the gap behind that
//   end   = the later of { begin + own time, what it waits for + the way from there }
//
// Own times, gaps and ways are those that were recorded, so an unchanged replay gives back every time exactly.
// What goes on in pieces is followed at its end: what takes the pieces ends behind what makes them, and a load that
// runs ahead of its work ends in front of that work's end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace musetrace::analysis {

using Time = std::int64_t;  // ns
using Place = std::int32_t;

inline constexpr Time kNoTime = std::numeric_limits<Time>::min();
inline constexpr Place kNone = -1;

enum class SpanClass : std::uint8_t { kWork, kLoad, kWait };
enum class Scope : std::uint8_t { kBlock, kRank, kRanks };

struct JobFacts {
    SpanClass span_class;
    Scope scope;    // of a wait: whose spans of the awaited job it waits for
    bool iterates;  // of a wait: for that of its own iteration
    bool is_team;   // several warps of its role stamp, and these move in step
    Place awaits;   // kNone where it is no wait, or for no job of the table
};

// The spans of one launch, all ranks of it, by columns. `block` is a number of its own for each block of each rank,
// `producer` the span that a wait was matched with, kNone where none; `under_way`: it had not ended then.
struct LaunchSpans {
    std::size_t size;
    const Time *begin, *end;
    const Place *job, *rank, *block, *role, *warp, *iteration, *producer;
    const std::uint8_t* under_way;
};

// When a rank's launch began, and when the one before it had ended; kNoTime where none was. What begins behind the
// begin of its launch and the end of the one before waited for that end: launches follow each other.
struct RankWindow {
    Time begin, before;
};

// How times change: own times of `job` are multiplied by `parts[job] / whole`; its waits cost nothing if `gone`.
struct Change {
    const std::int64_t* parts;
    std::int64_t whole;
    const std::uint8_t* gone;
};

enum class Step : std::uint8_t {
    kOwn,        // in a span
    kPiece,      // no time: a wait ended while `cause`, which it waits for, was under way
    kWay,        // from the end of `cause` to the end of the wait for it
    kLastPiece,  // from the end of `cause` to the end of the span that takes its pieces as they come
    kGap,        // between spans of a warp
    kHandOff,    // from the end of `cause`, of another warp of the block, to the begin of the span
    kLaunchWay,  // from the end of the launch before to the begin of the span
    kBefore,     // the launch before had not ended
    kHead,       // from the begin of the launch to that of the span
    kTail,       // behind the last span, to the end of the launch
};
inline constexpr const char* kStepNames[] = {"own",      "piece",      "way",    "last_piece", "gap",
                                             "hand_off", "launch_way", "before", "head",       "tail"};

struct PathStep {
    Step step;
    Place span, cause;
    Time from, until;
};

class SpanGraph {
  public:
    // `tick_ns` is the clock's step, 0 where it is not known.
    SpanGraph(const LaunchSpans& spans, std::vector<JobFacts> jobs, std::vector<RankWindow> ranks, Time tick_ns);

    // The chain of what held up the last end of a rank, or of all (kNone), from `end_ns` back to `begin_ns`.
    std::vector<PathStep> path(Place rank, Time begin_ns, Time end_ns) const;

    // The last end of each rank when times change; kNoTime where it has no span.
    std::vector<Time> replay(const Change& change) const;

    // Edges that were left out, for they would have closed a circle: ties within a tick, or an error between clocks.
    std::size_t dropped() const { return dropped_; }

    std::size_t jobs() const { return jobs_.size(); }

  private:
    // A node is an event, or the latest end of a producer and of all that are in front of it in its list.
    using Node = Place;
    struct Begin {
        Node lane = kNone, other = kNone;  // what came before: in its warp, and elsewhere
        Time after = kNoTime;  // a time that does not change: the launch's begin, or the end of the one before
        Time gap = 0;
        Place gap_of = kNone;  // whose own time the gap is: a span that goes on around this one
        bool is_hand_off = false, is_launch = false;
    };
    struct End {
        Node awaited = kNone;
        Time own = 0, way = 0;
        Place way_of = kNone;  // whose own time the way is
        Place producer = kNone;
        Place through = kNone;   // the job of the wait that made it follow, of what takes pieces
        Step step = Step::kOwn;  // how the path leaves it
    };
    struct Link {
        Node before;
        Place span;
    };

    static Node begin_of(Place span) { return 2 * span; }
    static Node end_of(Place span) { return 2 * span + 1; }
    Node link_of(std::size_t link) const { return static_cast<Node>(2 * size_ + link); }
    std::size_t nodes() const { return 2 * size_ + links_.size(); }
    Time time(Node node) const;
    Time own_time(Place span) const { return end_[span] - begin_[span]; }
    const JobFacts& facts(Place span) const { return jobs_[static_cast<std::size_t>(job_[span])]; }

    // building: span_graph.cpp and wait_edges.cpp
    void link_lanes(const LaunchSpans& spans);
    void link_lane(const std::vector<Place>& lane);
    void link_neighbours(const LaunchSpans& spans, const std::vector<Place>& by_end, Time length);
    void set_gap(Place span);
    void link_waits(const LaunchSpans& spans, Time tick_ns);
    struct WaitJob;
    WaitJob sort_producers(const LaunchSpans& spans, Place job);
    bool was_ready(Place wait, Place producer, Time tick_ns) const;
    void measure(const LaunchSpans& spans, const std::vector<Place>& waits, WaitJob& of_job, Time tick_ns) const;
    bool leaves_some(Place wait, Place taker, Place last) const;
    bool is_for_piece(const LaunchSpans& spans, Place wait) const;
    void link_wait(const LaunchSpans& spans, const WaitJob& of_job, Place wait, Time tick_ns);
    void link_ring(Place load, Place wait);
    void link_stream(const LaunchSpans& spans, const WaitJob& of_job, Place wait);

    // order: graph_order.cpp
    void put_in_order();
    Node dependence(Node node, int number) const;
    void drop(Node node);

    // path: critical_path.cpp
    struct Walk;
    void leave_end(Walk& walk) const;
    bool leave_begin(Walk& walk) const;

    std::size_t size_;
    std::vector<JobFacts> jobs_;
    std::vector<RankWindow> ranks_;
    std::vector<Time> begin_, end_;
    std::vector<Place> job_, rank_;
    std::vector<Place> next_in_lane_;
    std::vector<Time> shortest_;  // span of each job
    std::vector<Begin> begins_;
    std::vector<End> ends_;
    std::vector<Link> links_;
    std::vector<Node> order_;
    std::size_t dropped_ = 0;
};

}  // namespace musetrace::analysis
