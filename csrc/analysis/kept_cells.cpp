#include "analysis/kept_cells.h"

#include <algorithm>

namespace musetrace::analysis {
namespace {

constexpr std::int64_t kWhole = 255;

// A column that is shown in a bin, and for how long.
struct ShownColumn {
    std::uint32_t column;
    std::uint32_t bin;
    std::int64_t time;
};

// The time of [begin, end) that lies in a bin.
std::int64_t overlap(const Bins& bins, std::size_t bin, std::int64_t begin, std::int64_t end) {
    return std::max<std::int64_t>(std::min(bins.edge(bin + 1), end) - std::max(bins.edge(bin), begin), 0);
}

// Deals what of the step lies in a bin out to the columns that it shows, [first, past) of `shown`.
void deal_out(std::vector<ShownColumn>& shown, std::size_t first, std::int64_t inside, const CellLanes& of) {
    std::int64_t all = 0, before = 0;
    for (std::size_t i = first; i < shown.size(); ++i) all += of.edge[shown[i].column + 1] - of.edge[shown[i].column];
    for (std::size_t i = first; i < shown.size(); ++i) {
        const std::int64_t until = before + of.edge[shown[i].column + 1] - of.edge[shown[i].column];
        const auto dealt = [&](std::int64_t part) { return std::int64_t(double(inside) * double(part) / double(all)); };
        shown[i].time = dealt(until) - dealt(before);
        before = until;
    }
}

std::vector<ShownColumn> columns_inside(const CellLanes& of, const Bins& bins) {
    const std::int64_t from = bins.edge(0), to = bins.edge(bins.size());
    const std::int64_t begin = of.edge[0], end = of.edge[of.columns];
    std::vector<ShownColumn> shown;
    std::size_t bin = 0, first = 0;
    const std::int64_t* reached = std::upper_bound(of.edge, of.edge + of.columns + 1, from);
    for (std::size_t at = std::size_t(std::max<std::ptrdiff_t>(reached - of.edge - 1, 0)); at < of.columns; ++at) {
        const std::int64_t middle = of.edge[at] + (of.edge[at + 1] - of.edge[at]) / 2;
        if (of.edge[at] == of.edge[at + 1] || middle < from) continue;
        if (middle >= to) break;
        const std::size_t next = bins.from(bin, middle);
        if (next != bin) {
            deal_out(shown, first, overlap(bins, bin, begin, end), of);
            first = shown.size();
            bin = next;
        }
        shown.push_back({std::uint32_t(at), std::uint32_t(bin), 0});
    }
    deal_out(shown, first, overlap(bins, bin, begin, end), of);
    return shown;
}

// Adds a row of the timeline. Neighbours in a bin that show the same are one.
void add_row(const std::vector<ShownColumn>& shown, const std::uint8_t* place, const std::uint8_t* share,
             std::size_t places, RasterCells& cells) {
    std::size_t known = places, bin = 0;
    std::int64_t time = 0;
    for (const ShownColumn& one : shown) {
        const std::size_t here = place[one.column];
        if (here != known || one.bin != bin) {
            if (known < places) cells.add(known, bin, time);
            known = here;
            bin = one.bin;
            time = 0;
        }
        time += one.time * share[one.column];
    }
    if (known < places) cells.add(known, bin, time);
}

}  // namespace

void cells_raster(const std::vector<CellLanes>& lanes, const RasterJobs& jobs, const Bins& bins, const RowGroups& rows,
                  const RasterOut& out) {
    std::vector<std::vector<ShownColumn>> inside;
    for (const CellLanes& of : lanes) inside.push_back(columns_inside(of, bins));
    write_raster(jobs, bins, kWhole, rows, out, [&](std::int64_t row, RasterCells& cells) {
        for (std::size_t of = 0; of < lanes.size(); ++of) {
            const std::int64_t local = row - lanes[of].first_row;
            if (local < 0 || local >= lanes[of].rows) continue;
            const std::int64_t first = local * std::int64_t(lanes[of].columns);
            add_row(inside[of], lanes[of].place + first, lanes[of].share + first, jobs.places, cells);
        }
    });
}

}  // namespace musetrace::analysis
