// How long each block of each launch works, loads and waits: unions of its spans, and of what they are made.
// musetrace/analysis/intervals.py says what counts as a piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "analysis/instance_spans.h"

namespace musetrace::analysis {

// The union of intervals that come by begin.
class Union {
  public:
    // How much of the interval no earlier one covers.
    std::int64_t add(std::int64_t begin, std::int64_t end) {
        opened_ = begin >= covered_to_;
        if (opened_) piece_begin_ = begin;
        opened_ |= begin == end && begin == piece_begin_;
        const std::int64_t covered = std::max<std::int64_t>(end - std::max(begin, covered_to_), 0);
        covered_to_ = std::max(covered_to_, end);
        return covered;
    }

    // Whether the last interval may begin a piece of the union of its own.
    bool opened() const { return opened_; }
    bool is_empty() const { return covered_to_ < 0; }
    // Where the intervals so far end.
    std::int64_t covered_to() const { return std::max<std::int64_t>(covered_to_, 0); }

  private:
    std::int64_t covered_to_ = -1;
    std::int64_t piece_begin_ = -1;
    bool opened_ = false;
};

// A class of jobs includes those of the classes before it: busy, then loading, then waiting.
constexpr std::size_t kUnions = 3;

// By instance: what the union of each class covers, its pieces, and whether a span is of the class and not before it.
struct BusyUnions {
    std::int64_t* covered_ns[kUnions];
    std::int64_t* pieces[kUnions];
    std::uint8_t* has_own[kUnions];
};

// `first_class` has for each of 2^16 jobs the first class that it is in, kUnions for none.
void busy_unions(const InstanceSpans& spans, const std::uint8_t* first_class, const BusyUnions& found);

}  // namespace musetrace::analysis
