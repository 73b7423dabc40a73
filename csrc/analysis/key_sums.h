// Integer sums by key: entries with the same key become one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace musetrace::analysis {

// A number for each entry, or one for all of them where `values` is null.
struct KeyColumn {
    const std::int64_t* values;
    std::int64_t every;

    std::int64_t operator[](std::size_t entry) const { return values == nullptr ? every : values[entry]; }
};

// Distinct keys, by columns, and their sums. They ascend, the first column counts most; none has the sum 0.
struct KeySums {
    std::vector<std::vector<std::int64_t>> keys;
    std::vector<std::int64_t> sums;
};

// Of `size` entries; sums are modulo 2^64.
KeySums sum_by_key(const std::vector<KeyColumn>& keys, KeyColumn sums, std::size_t size);

}  // namespace musetrace::analysis
