#include "analysis/engine_unions.h"

#include "analysis/busy_unions.h"

namespace musetrace::analysis {
namespace {

void add(EngineUnion& found, Union& so_far, const InstanceSpan& span, std::size_t launch) {
    const bool apart = so_far.is_empty() || span.begin >= so_far.covered_to();
    so_far.add(span.begin, span.end);
    found.stamps[launch] += so_far.opened();
    if (apart) {
        found.begin.push_back(span.begin);
        found.end.push_back(span.end);
    } else {
        found.end.back() = so_far.covered_to();
    }
}

}  // namespace

std::vector<EngineUnion> engine_unions(const InstanceSpans& spans, std::size_t launches,
                                       const std::uint8_t* engine_of_job, const std::uint8_t* sets,
                                       std::size_t set_count) {
    std::vector<EngineUnion> found(set_count);
    for (EngineUnion& of : found) of.stamps.assign(launches, 0);
    std::vector<Union> unions(set_count);
    for (std::size_t instance = 0; instance + 1 < spans.first.size(); ++instance) {
        unions.assign(set_count, Union());
        for (std::size_t i = spans.first[instance]; i < spans.first[instance + 1]; ++i) {
            const InstanceSpan& span = spans.spans[i];
            const std::uint8_t engine = engine_of_job[span.job];
            for (std::size_t of = 0; of < set_count; ++of) {
                if (sets[of] & engine) add(found[of], unions[of], span, instance % launches);
            }
        }
    }
    return found;
}

}  // namespace musetrace::analysis
