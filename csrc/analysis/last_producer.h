// For each wait the span of the awaited job that ended last before the wait did. musetrace/analysis/producers.py has
// the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace musetrace::analysis {

constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();

// Within what a wait is matched. Iterations are told apart where both jobs have several.
enum class ProducerScope { kBlock, kRank, kRanks };

// Spans of one job: times on the common axis, rank as a place.
struct JobSpans {
    const std::int64_t* begin;
    const std::int64_t* end;
    const std::int32_t* rank;
    const std::int32_t* launch;  // ids below 2^16
    const std::int32_t* block;
    const std::int32_t* iteration;
    std::size_t size;
};

// `error_ns` and `aligned` are by rank of the wait; `of_clock`, by rank, says whose producers are candidates.
struct MatchRule {
    ProducerScope scope;
    bool by_iteration;
    std::size_t ranks;
    std::size_t blocks;
    std::int64_t apart_ns;
    const std::int64_t* error_ns;
    const std::uint8_t* aligned;
    const std::uint8_t* of_clock;
};

// One entry a wait. `span` is the place of its producer among the spans of that job: the one that ended last, or where
// none had, that began last; -1 where there is none.
struct ProducerMatch {
    explicit ProducerMatch(std::size_t waits)
        : end(waits, kNoTime),
          who(waits, -1),
          span(waits, -1),
          error_ns(waits, 0),
          tied(waits, 0),
          under_way(waits, 0) {}

    std::vector<std::int64_t> end;
    std::vector<std::int64_t> who;
    std::vector<std::int64_t> span;
    std::vector<std::int64_t> error_ns;
    std::vector<std::uint8_t> tied;
    std::vector<std::uint8_t> under_way;
};

// What is added up over the waits of each rank.
enum MatchSum { kMatched, kTied, kUnderWay, kBeforeNs, kAfterNs, kUnderWayNs, kErrorNs, kMatchSums };

// `sums` is [ranks, kMatchSums] and is added to; `match` as last_producers made it for these waits.
struct MatchColumns {
    const std::int64_t* end;
    const std::int64_t* error_ns;
    const std::uint8_t* tied;
    const std::uint8_t* under_way;
};
void add_match_sums(const JobSpans& waits, const MatchColumns& match, std::int64_t* sums);

ProducerMatch last_producers(const JobSpans& waits, const JobSpans& made, const MatchRule& rule);

}  // namespace musetrace::analysis
