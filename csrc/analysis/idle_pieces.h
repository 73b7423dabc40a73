// Cuts the idle time of each block of each launch into pieces of one cause. musetrace/analysis/idle.py has the rules.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/instance_spans.h"

namespace musetrace::analysis {

// What a job is to idle time, by job id.
enum class IdleClass : std::uint8_t { kOther, kBusy, kLoading, kWaiting, kSecondHandWait };

// Causes that are no wait's job id, which end below 2^16.
constexpr std::int64_t kHead = 1 << 16;
constexpr std::int64_t kTail = kHead + 1;
constexpr std::int64_t kLoadOnly = kHead + 2;
constexpr std::int64_t kUnlabelled = kHead + 3;

// One entry a piece, in the order of instance and begin.
struct IdlePieces {
    std::vector<std::int64_t> instance;
    std::vector<std::int64_t> cause;
    std::vector<std::int64_t> length_ns;
    std::vector<std::int64_t> contested_ns;
};

// `instances` are those that count, growing; `classes` has 2^16 entries. One list of pieces for each thread that
// worked, in order.
std::vector<IdlePieces> idle_pieces(const InstanceSpans& spans, const LaunchColumns& launches,
                                    const std::int64_t* instances, std::size_t count, const IdleClass* classes);

}  // namespace musetrace::analysis
