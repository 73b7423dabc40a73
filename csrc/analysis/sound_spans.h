// The spans of one (rank, step) as the store has them, made ready for the analysis: sound ones of chosen launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace musetrace::analysis {

// Columns of the store; `iteration` may be null, times are u32 or u64.
template <typename Time>
struct StoredSpans {
    const Time* begin;
    const Time* dur;
    const std::uint16_t* job;
    const std::uint16_t* launch;
    const std::uint16_t* block;
    const std::uint8_t* warp;
    const std::uint8_t* flag;
    const std::uint16_t* iteration;
    std::size_t size;
};

// `launch_place` has 2^16 entries, -1 for a launch that is not chosen; `instant` 2^16.
struct SoundRule {
    const std::int64_t* launch_place;
    const std::uint8_t* instant;
    std::int64_t blocks;
    std::int64_t tick_ns;
};

// Where to write; as long as there are spans. `flagged` and `below_tick` are by launch and added to.
struct SoundSpans {
    std::int64_t* begin;
    std::int64_t* end;
    std::int64_t* job;
    std::int64_t* launch;
    std::int64_t* block;
    std::int64_t* warp;
    std::int64_t* iteration;
    std::int64_t* flagged;
    std::int64_t* below_tick;
};

// How many spans of the chosen launches are sound: that many entries are written.
template <typename Time>
std::size_t sound_spans(const StoredSpans<Time>& spans, const SoundRule& rule, const SoundSpans& found) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < spans.size; ++i) {
        const std::int64_t place = rule.launch_place[spans.launch[i]];
        if (place < 0) continue;
        if (spans.flag[i] != 0 || spans.block[i] >= rule.blocks) {
            ++found.flagged[place];
            continue;
        }
        const std::int64_t length = std::int64_t(spans.dur[i]);
        found.begin[kept] = std::int64_t(spans.begin[i]);
        found.end[kept] = std::int64_t(spans.begin[i]) + length;
        found.job[kept] = spans.job[i];
        found.launch[kept] = place;
        found.block[kept] = spans.block[i];
        found.warp[kept] = spans.warp[i];
        found.iteration[kept] = spans.iteration ? spans.iteration[i] : 0;
        found.below_tick[place] += length < rule.tick_ns && !rule.instant[spans.job[i]];
        ++kept;
    }
    return kept;
}

}  // namespace musetrace::analysis
