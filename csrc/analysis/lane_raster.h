// A window of a timeline as a raster: rows in groups, time in bins, a cell's op that of most of its time.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "analysis/lane_spans.h"
#include "analysis/parallel.h"
#include "analysis/raster_cells.h"

namespace musetrace::analysis {

constexpr std::size_t kMostClasses = 8;
constexpr std::size_t kLeastGroups = 16;  // of a thread

// Group g of `groups` is rows [first + g * n / groups, first + (g + 1) * n / groups) of n rows.
struct RowGroups {
    std::int64_t first;
    std::int64_t past;
    std::int64_t groups;

    std::int64_t begin(std::size_t group) const { return first + (past - first) * std::int64_t(group) / groups; }
};

// Where to write: [groups, strips, width]. Strips are the classes, or one of the first class that has something.
struct RasterOut {
    std::uint8_t* op;
    std::uint8_t* share;
    std::uint8_t* strip;
    bool by_class;

    void write(std::size_t at, const Cell& cell) const {
        op[at] = cell.op;
        share[at] = cell.share;
        strip[at] = cell.strip;
    }
};

// add_row(row, cells) adds all of a row of the timeline, whose time counts `scale` times.
template <typename AddRow>
void write_raster(const RasterJobs& jobs, const Bins& bins, std::int64_t scale, const RowGroups& rows,
                  const RasterOut& out, AddRow add_row) {
    const std::size_t strips = out.by_class ? jobs.classes : 1, groups = std::size_t(rows.groups);
    for_parts(groups, part_count(groups, kLeastGroups), [&](std::size_t, std::size_t first, std::size_t past) {
        RasterCells cells(jobs, bins, (rows.past - rows.first) / rows.groups + 1, scale);
        std::size_t at = first * strips * bins.size();
        for (std::size_t group = first; group < past; ++group) {
            const std::int64_t begin = rows.begin(group), end = rows.begin(group + 1);
            for (std::int64_t row = begin; row < end; ++row) add_row(row, cells);
            for (std::size_t of = 0; of < strips; ++of) {
                for (std::size_t bin = 0; bin < bins.size(); ++bin, ++at) {
                    out.write(at,
                              out.by_class ? cells.of_class(of, bin, end - begin) : cells.of_first(bin, end - begin));
                }
            }
            cells.clear();
        }
    });
}

// Lanes in the order of time. Spans with a flag have no length and no certain place: they are left out.
template <typename Time>
void lane_raster(const std::vector<LaneSpans<Time>>& lanes, const RasterJobs& jobs, const Bins& bins,
                 const RowGroups& rows, const RasterOut& out) {
    const std::int64_t from = bins.edge(0), to = bins.edge(bins.size());
    write_raster(jobs, bins, 1, rows, out, [&](std::int64_t row, RasterCells& cells) {
        std::array<std::int64_t, kMostClasses> covered_to;
        covered_to.fill(from);
        std::size_t bin = 0;
        for (const LaneSpans<Time>& of : lanes) {
            const std::int64_t local = row - of.first_row;
            if (local < 0 || local >= of.rows) continue;
            for_inside(of, local, from, to, [&](std::int64_t i) {
                const std::int16_t place = jobs.place_of_job[of.job[i]];
                if (place < 0 || of.flag[i] != 0) return;
                const std::int64_t begin = of.base_ns + std::int64_t(of.begin[i]);
                const std::int64_t end = std::min(begin + std::int64_t(of.dur[i]), to);
                std::int64_t& covered = covered_to[jobs.class_of[place]];
                bin = bins.from(bin, std::max(begin, from));
                cells.add_span(std::size_t(place), bin, std::max(begin, from), end, covered);
                covered = std::max(covered, end);
            });
        }
    });
}

}  // namespace musetrace::analysis
