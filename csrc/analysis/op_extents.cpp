#include "analysis/op_extents.h"

#include <algorithm>
#include <limits>

namespace musetrace::analysis {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// Beyond this, entries are sorted: a table of all that there may be would be of nothing mostly.
constexpr std::size_t kDenseEntries = 1 << 22;

struct Extent {
    std::int64_t begin = kNever;
    std::int64_t end = -kNever;
};

struct Key {
    std::size_t key;
    Extent extent;
};

}  // namespace

OpExtents op_extents(const SpanColumns& spans, const std::int64_t* row_of_job, std::size_t rows, std::size_t launches,
                     std::size_t blocks) {
    const auto key_of = [&](std::size_t i) {
        const std::size_t row = std::size_t(row_of_job[spans.job[i]]);
        return (row * launches + std::size_t(spans.launch[i])) * blocks + std::size_t(spans.block[i]);
    };
    OpExtents found;
    const auto take = [&](std::size_t key, const Extent& extent) {
        found.row.push_back(std::int64_t(key / blocks / launches));
        found.launch.push_back(std::int64_t(key / blocks % launches));
        found.block.push_back(std::int64_t(key % blocks));
        found.begin.push_back(extent.begin);
        found.end.push_back(extent.end);
    };
    if (rows * launches * blocks <= kDenseEntries) {
        std::vector<Extent> table(rows * launches * blocks);
        for (std::size_t i = 0; i < spans.size; ++i) {
            if (row_of_job[spans.job[i]] < 0) continue;
            Extent& extent = table[key_of(i)];
            extent = {std::min(extent.begin, spans.begin[i]), std::max(extent.end, spans.end[i])};
        }
        for (std::size_t key = 0; key < table.size(); ++key) {
            if (table[key].begin != kNever) take(key, table[key]);
        }
        return found;
    }
    std::vector<Key> keys;
    for (std::size_t i = 0; i < spans.size; ++i) {
        if (row_of_job[spans.job[i]] >= 0) keys.push_back({key_of(i), {spans.begin[i], spans.end[i]}});
    }
    std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.key < b.key; });
    for (std::size_t i = 0; i < keys.size();) {
        const std::size_t key = keys[i].key;
        Extent extent;
        for (; i < keys.size() && keys[i].key == key; ++i) {
            extent = {std::min(extent.begin, keys[i].extent.begin), std::max(extent.end, keys[i].extent.end)};
        }
        take(key, extent);
    }
    return found;
}

}  // namespace musetrace::analysis
