// When the engines of a block are at work: unions of the spans of sets of engines.
// musetrace/analysis/engine_unions.py says what the sets are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/instance_spans.h"

namespace musetrace::analysis {

// The pieces of a union, in the order of instance and begin, ns from the launch's begin; and by launch how many
// differences of stamps it is made of, at most.
struct EngineUnion {
    std::vector<std::int64_t> begin;
    std::vector<std::int64_t> end;
    std::vector<std::int64_t> stamps;
};

// One union for each set, a bit for each engine. `engine_of_job` has the bit of each of 2^16 jobs, 0 for none.
std::vector<EngineUnion> engine_unions(const InstanceSpans& spans, std::size_t launches,
                                       const std::uint8_t* engine_of_job, const std::uint8_t* sets,
                                       std::size_t set_count);

}  // namespace musetrace::analysis
