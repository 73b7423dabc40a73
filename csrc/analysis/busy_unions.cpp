#include "analysis/busy_unions.h"

#include "analysis/parallel.h"

namespace musetrace::analysis {
namespace {

constexpr std::size_t kLeastOfAPart = 512;

void add_instance(const InstanceSpans& spans, std::size_t instance, const std::uint8_t* first_class,
                  const BusyUnions& found) {
    Union unions[kUnions];
    for (std::size_t i = spans.first[instance]; i < spans.first[instance + 1]; ++i) {
        const InstanceSpan& span = spans.spans[i];
        const std::size_t own = first_class[span.job];
        if (own < kUnions) found.has_own[own][instance] = 1;
        for (std::size_t of = own; of < kUnions; ++of) {
            found.covered_ns[of][instance] += unions[of].add(span.begin, span.end);
            found.pieces[of][instance] += unions[of].opened();
        }
    }
}

}  // namespace

void busy_unions(const InstanceSpans& spans, const std::uint8_t* first_class, const BusyUnions& found) {
    const std::size_t instances = spans.first.size() - 1;
    for_parts(instances, part_count(instances, kLeastOfAPart), [&](std::size_t, std::size_t first, std::size_t past) {
        for (std::size_t i = first; i < past; ++i) add_instance(spans, i, first_class, found);
    });
}

}  // namespace musetrace::analysis
