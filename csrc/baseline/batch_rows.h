// The rows of a pass over several sequences, from what the host says of them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "baseline/chain_params.h"

namespace musetrace::baseline {

// Throws std::invalid_argument, as the function below does.
inline std::uint32_t checked_sequences(std::uint32_t sequences) {
    if (sequences < 1 || sequences > kTokens) throw std::invalid_argument("sequences must be 1 to 16");
    return sequences;
}

// `sequences` and `positions` are those of each row; there are `count` sequences with `capacity` positions each.
inline BatchRows batch_rows(const std::vector<std::uint32_t>& sequences, const std::vector<std::uint32_t>& positions,
                            std::uint32_t count, std::uint32_t capacity) {
    if (sequences.size() != kTokens || positions.size() != kTokens) {
        throw std::invalid_argument("a pass has 16 rows, each with a sequence and a position");
    }
    BatchRows rows{};
    for (std::uint32_t row = 0; row < kTokens; ++row) {
        if (sequences[row] >= count || positions[row] >= capacity) {
            throw std::invalid_argument("row " + std::to_string(row) + " is at position " +
                                        std::to_string(positions[row]) + " of sequence " +
                                        std::to_string(sequences[row]) + "; there are " + std::to_string(count) +
                                        " of " + std::to_string(capacity));
        }
        rows.sequence[row] = sequences[row];
        rows.position[row] = positions[row];
    }
    return rows;
}

}  // namespace musetrace::baseline
