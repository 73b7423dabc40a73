// What changes from step to step, in device memory, so that a graph can be replayed: no host value changes in between.
// The meaning of tree and path is that of musetrace/muse/speculative.
#pragma once

#include <cstddef>
#include <cstdint>

#include "muse/shape.h"

namespace musetrace::megakernel {

inline constexpr std::uint32_t kMaxTopK = 8;  // candidates for a position

struct StepState {
    std::uint32_t position;  // of the root, the first of the 16 rows; row i has its keys and values at `position` + i
    std::uint32_t epoch;     // added to the launch's own
    // How the rows of a verify pass stand to each other; a chain's are those of `chain_rows`.
    std::uint8_t depth[kTokens];  // a row's rotary position is `position` + depth
    std::uint16_t sees[kTokens];  // a bit for each of the 16 rows
    // The tree that they come from, and what the target made of the one before.
    std::uint32_t tokens[kTokens];   // of the nodes; the root is node 0
    std::uint32_t parents[kTokens];  // of the nodes; the root's is 0
    std::uint32_t kept;              // positions right in front of the root that the draft's cache lacks, at most 16
    std::uint32_t path[kTokens];     // which row of the last verify pass each of them was; `kept` of these count
    std::uint32_t chosen[kTokens];   // the tokens behind them; the last is the root
    std::uint32_t top_k;             // candidates a depth; 1 makes a chain
    double temperature;              // 0: greedy
    std::uint64_t seed;
};

// Where a launch's slots stand in a block's row of a region, which may have those of other launches' tables beside
// them.
struct StampRow {
    std::uint32_t slots;  // of the row
    std::uint32_t first;
};

// The part of the state that says where the rows stand.
struct RowPlaces {
    std::uint8_t depth[kTokens];
    std::uint16_t sees[kTokens];
};
static_assert(offsetof(StepState, sees) - offsetof(StepState, depth) == offsetof(RowPlaces, sees) &&
              offsetof(StepState, tokens) - offsetof(StepState, depth) == sizeof(RowPlaces));

constexpr RowPlaces chain_rows() {
    RowPlaces rows{};
    for (std::uint32_t row = 0; row < kTokens; ++row) {
        rows.depth[row] = static_cast<std::uint8_t>(row);
        rows.sees[row] = static_cast<std::uint16_t>((2u << row) - 1);
    }
    return rows;
}

// `parents` [kTokens], each before its child.
constexpr RowPlaces tree_rows(const std::uint32_t* parents) {
    RowPlaces rows{};
    rows.sees[0] = 1;
    for (std::uint32_t row = 1; row < kTokens; ++row) {
        rows.depth[row] = static_cast<std::uint8_t>(rows.depth[parents[row]] + 1);
        rows.sees[row] = static_cast<std::uint16_t>(rows.sees[parents[row]] | 1u << row);
    }
    return rows;
}

}  // namespace musetrace::megakernel
