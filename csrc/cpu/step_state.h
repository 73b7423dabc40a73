// What a decode step hands to the next one, on the device: no host value changes between steps
// (musetrace/muse/speculative says what tree, accepting and sampling are).
#pragma once

#include <cstdint>

#include "muse/shape.h"

namespace musetrace::cpu {

inline constexpr std::uint32_t kMaxTopK = 8;

struct StepState {
    std::uint32_t position = 0;           // tokens in the target's cache; the root stands there
    std::uint32_t kept = 0;               // of them, those that the last pass put there: their context is not yet made
    std::uint32_t path[kTokens] = {};     // rows of the last pass that were kept, ascending
    std::uint32_t chosen[kTokens] = {};   // the tokens behind them; the last is the root
    std::uint32_t tokens[kTokens] = {};   // of the nodes; the root is node 0
    std::uint32_t parents[kTokens] = {};  // of the nodes; the root's is 0
    std::uint32_t top_k = kMaxTopK;       // candidates a depth; 1 makes a chain
    double temperature = 0;               // 0: greedy
    std::uint64_t seed = 0;
};

// Where the 16 rows of a pass stand and what they see of each other.
struct Rows {
    std::uint32_t position[kTokens];
    std::uint16_t sees[kTokens];  // a bit for each row

    static Rows chain(std::uint32_t start) {
        Rows rows{};
        for (std::uint32_t row = 0; row < kTokens; ++row) {
            rows.position[row] = start + row;
            rows.sees[row] = static_cast<std::uint16_t>((2u << row) - 1);
        }
        return rows;
    }

    // Rows that all see each other: a draft pass.
    static Rows block(std::uint32_t start) {
        Rows rows = chain(start);
        for (std::uint16_t& sees : rows.sees) sees = 0xFFFF;
        return rows;
    }

    static Rows tree(const StepState& state) {
        Rows rows = chain(state.position);
        for (std::uint32_t row = 1; row < kTokens; ++row) {
            const std::uint32_t parent = state.parents[row];
            rows.position[row] = rows.position[parent] + 1;
            rows.sees[row] = static_cast<std::uint16_t>(rows.sees[parent] | 1u << row);
        }
        return rows;
    }
};

}  // namespace musetrace::cpu
