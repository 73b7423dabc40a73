#include "analysis/op_unions.h"

#include <algorithm>

#include "analysis/busy_unions.h"
#include "analysis/parallel.h"

namespace musetrace::analysis {
namespace {

constexpr std::size_t kLeastOfAPart = 512;

struct OfRow {
    Union busy;
    std::int64_t covered_ns = 0;
    std::int64_t pieces = 0;  // 0: no span
};

}  // namespace

std::vector<OpUnions> op_unions(const InstanceSpans& spans, const std::int64_t* row_of_job, std::size_t rows) {
    const std::size_t instances = spans.first.size() - 1;
    std::vector<OpUnions> found(part_count(instances, kLeastOfAPart));
    for_parts(instances, found.size(), [&](std::size_t part, std::size_t first, std::size_t past) {
        std::vector<OfRow> of_rows(rows);
        for (std::size_t instance = first; instance < past; ++instance) {
            std::fill(of_rows.begin(), of_rows.end(), OfRow{});
            for (std::size_t i = spans.first[instance]; i < spans.first[instance + 1]; ++i) {
                const InstanceSpan& span = spans.spans[i];
                if (row_of_job[span.job] < 0) continue;
                OfRow& row = of_rows[std::size_t(row_of_job[span.job])];
                row.covered_ns += row.busy.add(span.begin, span.end);
                row.pieces += row.busy.opened();
            }
            for (std::size_t row = 0; row < rows; ++row) {
                if (!of_rows[row].pieces) continue;
                found[part].instance.push_back(std::int64_t(instance));
                found[part].row.push_back(std::int64_t(row));
                found[part].covered_ns.push_back(of_rows[row].covered_ns);
                found[part].pieces.push_back(of_rows[row].pieces);
            }
        }
    });
    return found;
}

}  // namespace musetrace::analysis
