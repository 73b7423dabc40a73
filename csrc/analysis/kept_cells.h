// A raster made of finer cells, which are kept of each step: what takes most of a cell, and how much of it.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/lane_raster.h"

namespace musetrace::analysis {

// Cells of one step of one rank on a timeline: [rows, columns]. A column is [edge[i], edge[i + 1]); a place that the
// jobs do not have means that nothing is there, and a share is in 1 / 255 of the column.
struct CellLanes {
    const std::int64_t* edge;
    const std::uint8_t* place;
    const std::uint8_t* share;
    std::size_t columns;
    std::int64_t rows;
    std::int64_t first_row;
};

// Rows of one strip. A bin shows the columns whose middle lies in it: what of a step lies in it is taken for as long as
// it is, and filled as these columns are.
void cells_raster(const std::vector<CellLanes>& lanes, const RasterJobs& jobs, const Bins& bins, const RowGroups& rows,
                  const RasterOut& out);

}  // namespace musetrace::analysis
