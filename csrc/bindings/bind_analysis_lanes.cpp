// Windows of a timeline, as Python sees them.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "analysis/kept_cells.h"
#include "analysis/lane_questions.h"
#include "analysis/lane_raster.h"
#include "analysis/lane_spans.h"
#include "analysis/launch_cover.h"
#include "bindings/analysis_arrays.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

template <typename Value>
using Column = py::array_t<Value, py::array::c_style>;

constexpr py::ssize_t kJobs = 1 << 16;
constexpr std::int64_t kMostWidth = 1 << 14, kMostGroups = 1 << 14;

// (begin, dur, job, flag, first, longest, first_row, base_ns) of one rank and step.
template <typename Time>
struct HeldLanes {
    std::vector<analysis::LaneSpans<Time>> lanes;
    std::vector<py::array> columns;  // what the lanes point to
};

template <typename Time>
HeldLanes<Time> lanes_of(const std::vector<py::tuple>& sources) {
    HeldLanes<Time> held;
    for (const py::tuple& source : sources) {
        if (source.size() != 8) throw std::invalid_argument("lanes are eight things");
        const auto begin = source[0].cast<Column<Time>>(), dur = source[1].cast<Column<Time>>();
        const auto job = source[2].cast<Column<std::uint16_t>>();
        const auto flag = source[3].cast<Column<std::uint8_t>>();
        const auto first = source[4].cast<Column<std::int64_t>>(), longest = source[5].cast<Column<std::int64_t>>();
        const std::array<py::array, 3> others{dur, job, flag};
        for (const py::array& other : others) check_length(other, begin.size(), "a column of lanes");
        const std::int64_t rows = first.size() - 1;
        if (rows < 0 || first.data()[0] != 0 || first.data()[rows] != begin.size() ||
            !std::is_sorted(first.data(), first.data() + rows + 1)) {
            throw std::invalid_argument("rows of lanes do not fit their columns");
        }
        check_length(longest, rows, "longest");
        held.lanes.push_back({begin.data(), dur.data(), job.data(), flag.data(), first.data(), longest.data(), rows,
                              source[6].cast<std::int64_t>(), source[7].cast<std::int64_t>()});
        held.columns.insert(held.columns.end(), {begin, dur, job, flag, first, longest});
    }
    return held;
}

bool is_wide(const std::vector<py::tuple>& sources) {
    return !sources.empty() && sources[0].size() > 0 && sources[0][0].cast<py::array>().itemsize() == 8;
}

using WindowNumbers = std::array<std::int64_t, 4>;  // from_ns, to_ns, row_from, row_to

analysis::LaneWindow window_of(const WindowNumbers& of) { return {of[0], of[1], of[2], of[3]}; }

// Calls ask(lanes) with the lanes of the right type; `ask` frees the interpreter's lock itself.
template <typename Ask>
auto with_lanes(const std::vector<py::tuple>& sources, Ask ask) {
    if (is_wide(sources)) {
        const HeldLanes<std::uint64_t> held = lanes_of<std::uint64_t>(sources);
        return ask(held.lanes);
    }
    const HeldLanes<std::uint32_t> held = lanes_of<std::uint32_t>(sources);
    return ask(held.lanes);
}

// Where each of `rows` rows begins in spans that are sorted by row and begin, and its longest span; None: they are not.
template <typename Time>
py::object lane_rows(const Column<std::uint16_t>& row, const Column<Time>& begin, const Column<Time>& dur,
                     std::int64_t rows) {
    check_length(begin, row.size(), "begin");
    check_length(dur, row.size(), "dur");
    if (rows < 0 || rows > kJobs) throw std::invalid_argument("so many rows there cannot be");
    Ints first(rows + 1), longest(rows);
    bool sorted = true;
    {
        const std::uint16_t* of = row.data();
        const Time *begins = begin.data(), *durs = dur.data();
        std::int64_t *firsts = first.mutable_data(), *longests = longest.mutable_data();
        const std::int64_t size = row.size();
        const py::gil_scoped_release free;
        std::fill_n(longests, rows, 0);
        for (std::int64_t i = 1; i < size; ++i) {
            sorted &= of[i] > of[i - 1] || (of[i] == of[i - 1] && begins[i] >= begins[i - 1]);
        }
        std::int64_t at = 0;
        for (std::int64_t one = 0; sorted && one < rows; ++one) {
            firsts[one] = at;
            for (; at < size && of[at] == one; ++at) longests[one] = std::max(longests[one], std::int64_t(durs[at]));
        }
        firsts[rows] = at;
    }
    return sorted ? py::object(py::make_tuple(first, longest)) : py::object(py::none());
}

py::tuple count_spans(const std::vector<py::tuple>& sources, const WindowNumbers& window) {
    const analysis::LaneCount found = with_lanes(sources, [&](const auto& lanes) {
        const py::gil_scoped_release free;
        return analysis::count_spans(lanes, window_of(window));
    });
    return py::make_tuple(found.spans, found.flagged);
}

py::tuple spans_inside(const std::vector<py::tuple>& sources, const WindowNumbers& window) {
    analysis::SpanPlaces found = with_lanes(sources, [&](const auto& lanes) {
        const py::gil_scoped_release free;
        return analysis::spans_inside(lanes, window_of(window));
    });
    return py::make_tuple(to_array(std::move(found.source)), to_array(std::move(found.index)),
                          to_array(std::move(found.row)));
}

py::tuple count_lengths(const std::vector<py::tuple>& sources, const WindowNumbers& window,
                        const Column<std::uint16_t>& group_of_job, std::int64_t groups) {
    check_length(group_of_job, kJobs, "group_of_job");
    const std::uint16_t* of_jobs = group_of_job.data();
    if (groups < 1 || *std::max_element(of_jobs, of_jobs + kJobs) >= groups) {
        throw std::invalid_argument("group_of_job is not below the number of groups");
    }
    analysis::LengthCounts found = with_lanes(sources, [&](const auto& lanes) {
        const py::gil_scoped_release free;
        return analysis::count_lengths(lanes, window_of(window), of_jobs, std::size_t(groups));
    });
    return py::make_tuple(to_array(std::move(found.first)), to_array(std::move(found.length)),
                          to_array(std::move(found.count)), to_array(std::move(found.inside)), found.flagged);
}

py::tuple search_spans(const py::tuple& source, const WindowNumbers& window, const Bytes& wanted_job,
                       std::array<std::int64_t, 2> lengths, bool longest_first, std::int64_t most_hits,
                       std::array<std::int64_t, 3> after) {
    check_length(wanted_job, kJobs, "wanted_job");
    if (most_hits < 1) throw std::invalid_argument("most_hits is not positive");
    const std::vector<py::tuple> sources{source};
    const analysis::SpanSearch search{wanted_job.data(), lengths[0], lengths[1], longest_first, std::size_t(most_hits)};
    const analysis::SpanHit behind{after[0], after[1], after[2]};
    const analysis::SpanHits found = with_lanes(sources, [&](const auto& lanes) {
        const py::gil_scoped_release free;
        return analysis::search_spans(lanes[0], window_of(window), search, behind);
    });
    Ints shorter(py::ssize_t(found.hits.size())), begin(py::ssize_t(found.hits.size()));
    Ints index(py::ssize_t(found.hits.size()));
    for (std::size_t i = 0; i < found.hits.size(); ++i) {
        shorter.mutable_data()[i] = found.hits[i].shorter;
        begin.mutable_data()[i] = found.hits[i].begin_ns;
        index.mutable_data()[i] = found.hits[i].index;
    }
    return py::make_tuple(found.total, found.behind, shorter, begin, index);
}

// What jobs are drawn as, checked.
struct JobArrays {
    Column<std::int16_t> place_of_job;
    Bytes class_of, op_of, strip_of;
    std::int64_t classes;

    analysis::RasterJobs jobs() const {
        check_length(op_of, class_of.size(), "op_of");
        check_length(strip_of, class_of.size(), "strip_of");
        if (classes < 1 || classes > std::int64_t(analysis::kMostClasses)) {
            throw std::invalid_argument("so many classes there cannot be");
        }
        const std::uint8_t* of = class_of.data();
        if (std::any_of(of, of + class_of.size(), [&](std::uint8_t one) { return one >= classes; })) {
            throw std::invalid_argument("class_of is not below the number of classes");
        }
        return {place_of_job.data(), of, op_of.data(), strip_of.data(), std::size_t(class_of.size()),
                std::size_t(classes)};
    }

    analysis::RasterJobs jobs_by_id() const {
        check_length(place_of_job, kJobs, "place_of_job");
        const std::int16_t* places = place_of_job.data();
        if (*std::max_element(places, places + kJobs) >= class_of.size()) {
            throw std::invalid_argument("place_of_job is not below the number of places");
        }
        return jobs();
    }
};

JobArrays jobs_of(const py::tuple& of) {
    if (of.size() != 5) throw std::invalid_argument("jobs are five things");
    return {of[0].cast<Column<std::int16_t>>(), of[1].cast<Bytes>(), of[2].cast<Bytes>(), of[3].cast<Bytes>(),
            of[4].cast<std::int64_t>()};
}

// The arrays of a raster, [groups, strips, width], and how to write them.
struct Raster {
    Raster(const WindowNumbers& window, std::int64_t width, std::int64_t groups, bool by_class, std::int64_t classes)
        : bins(checked(window, width, groups)[0], window[1], std::size_t(width)),
          rows{window[2], window[3], groups},
          op(shape(width, groups, by_class, classes)),
          share(shape(width, groups, by_class, classes)),
          strip(shape(width, groups, by_class, classes)),
          out{op.mutable_data(), share.mutable_data(), strip.mutable_data(), by_class} {}

    static std::vector<py::ssize_t> shape(std::int64_t width, std::int64_t groups, bool by_class,
                                          std::int64_t classes) {
        return {py::ssize_t(groups), py::ssize_t(by_class ? classes : 1), py::ssize_t(width)};
    }

    static const WindowNumbers& checked(const WindowNumbers& window, std::int64_t width, std::int64_t groups) {
        if (width < 1 || width > kMostWidth || window[1] <= window[0] || window[1] - window[0] < width) {
            throw std::invalid_argument("a raster has 1 to 16384 bins of at least 1 ns");
        }
        if (groups < 1 || groups > kMostGroups || window[3] - window[2] < groups) {
            throw std::invalid_argument("a raster has 1 to 16384 groups of at least one row");
        }
        return window;
    }

    analysis::Bins bins;
    analysis::RowGroups rows;
    py::array_t<std::uint8_t> op, share, strip;
    analysis::RasterOut out;
};

py::tuple lane_raster(const std::vector<py::tuple>& sources, const WindowNumbers& window, std::int64_t width,
                      std::int64_t groups, const py::tuple& jobs, bool by_class) {
    const JobArrays of_jobs = jobs_of(jobs);
    const analysis::RasterJobs drawn = of_jobs.jobs_by_id();
    Raster raster(window, width, groups, by_class, of_jobs.classes);
    with_lanes(sources, [&](const auto& lanes) {
        const py::gil_scoped_release free;
        analysis::lane_raster(lanes, drawn, raster.bins, raster.rows, raster.out);
        return 0;
    });
    return py::make_tuple(raster.op, raster.share, raster.strip);
}

// (begin, end, reach, packed [blocks, launches], first_row) of one rank.
py::tuple cover_raster(const std::vector<py::tuple>& sources, const WindowNumbers& window, std::int64_t width,
                       std::int64_t groups, const py::tuple& jobs, bool by_class) {
    std::vector<analysis::CoverLanes> lanes;
    std::vector<py::array> columns;  // what the lanes point to
    for (const py::tuple& source : sources) {
        if (source.size() != 5) throw std::invalid_argument("covers are five things");
        const auto begin = source[0].cast<Column<std::int64_t>>(), end = source[1].cast<Column<std::int64_t>>();
        const auto reached = source[2].cast<Column<std::int64_t>>(), packed = source[3].cast<Column<std::int64_t>>();
        check_length(end, begin.size(), "end");
        check_length(reached, begin.size(), "reach");
        if (packed.ndim() != 2 || packed.shape(1) != begin.size()) throw std::invalid_argument("packed does not fit");
        lanes.push_back({begin.data(), end.data(), reached.data(), packed.data(), std::size_t(begin.size()),
                         packed.shape(0), source[4].cast<std::int64_t>()});
        columns.insert(columns.end(), {begin, end, reached, packed});
    }
    const JobArrays of_jobs = jobs_of(jobs);
    const analysis::RasterJobs drawn = of_jobs.jobs();
    if (drawn.places == 0 || drawn.places % analysis::kCoverClasses != 0) {
        throw std::invalid_argument("places are not those of all ops in each strip");
    }
    Raster raster(window, width, groups, by_class, of_jobs.classes);
    {
        const py::gil_scoped_release free;
        analysis::cover_raster(lanes, drawn, raster.bins, raster.rows, raster.out);
    }
    return py::make_tuple(raster.op, raster.share, raster.strip);
}

// (edge, place [rows, columns], share, first_row) of one rank and step.
py::tuple cells_raster(const std::vector<py::tuple>& sources, const WindowNumbers& window, std::int64_t width,
                       std::int64_t groups, const py::tuple& jobs) {
    std::vector<analysis::CellLanes> lanes;
    std::vector<py::array> held;  // what the lanes point to
    for (const py::tuple& source : sources) {
        if (source.size() != 4) throw std::invalid_argument("cells are four things");
        const auto edge = source[0].cast<Column<std::int64_t>>();
        const auto place = source[1].cast<Bytes>(), share = source[2].cast<Bytes>();
        if (place.ndim() != 2 || share.ndim() != 2 || place.shape(0) != share.shape(0) ||
            place.shape(1) != share.shape(1) || edge.ndim() != 1 || edge.size() != place.shape(1) + 1) {
            throw std::invalid_argument("cells do not fit their edges");
        }
        lanes.push_back({edge.data(), place.data(), share.data(), std::size_t(place.shape(1)), place.shape(0),
                         source[3].cast<std::int64_t>()});
        held.insert(held.end(), {edge, place, share});
    }
    const JobArrays of_jobs = jobs_of(jobs);
    const analysis::RasterJobs drawn = of_jobs.jobs();
    Raster raster(window, width, groups, false, of_jobs.classes);
    {
        const py::gil_scoped_release free;
        analysis::cells_raster(lanes, drawn, raster.bins, raster.rows, raster.out);
    }
    return py::make_tuple(raster.op, raster.share, raster.strip);
}

}  // namespace

void bind_analysis_lanes(py::module_ module) {
    module.def("lane_rows", &lane_rows<std::uint32_t>, py::arg("row"), py::arg("begin").noconvert(),
               py::arg("dur").noconvert(), py::arg("rows"),
               "(first, longest) of the rows [0, rows), int64, or None when spans are not sorted by row and begin");
    module.def("lane_rows", &lane_rows<std::uint64_t>, py::arg("row"), py::arg("begin").noconvert(),
               py::arg("dur").noconvert(), py::arg("rows"));
    module.def("count_spans", &count_spans, py::arg("lanes"), py::arg("window"),
               "(spans, flagged) in a window (from_ns, to_ns, row_from, row_to); lanes as (begin, dur, job, flag, "
               "first, longest, first_row, base_ns), the first two all u32 or all u64");
    module.def("spans_inside", &spans_inside, py::arg("lanes"), py::arg("window"),
               "(lanes, index, row) of each span in a window, int64");
    module.def("count_lengths", &count_lengths, py::arg("lanes"), py::arg("window"), py::arg("group_of_job"),
               py::arg("groups"),
               "(first, length, count, inside, flagged): how often each length occurs in each group, where each group "
               "begins, and the time of each inside; int64");
    module.def(
        "search_spans", &search_spans, py::arg("lanes"), py::arg("window"), py::arg("wanted_job"), py::arg("lengths"),
        py::arg("longest_first"), py::arg("most_hits"), py::arg("after"),
        "(total, how many behind `after`, minus the length or 0, begin_ns, index); the last three of the first hits "
        "behind `after`, which is of the same three");
    module.def("lane_raster", &lane_raster, py::arg("lanes"), py::arg("window"), py::arg("width"), py::arg("groups"),
               py::arg("jobs"), py::arg("by_class"),
               "(op, share, strip), u8[groups, strips, width]; jobs as (place_of_job i16[65536], class_of, op_of, "
               "strip_of, classes)");
    module.def("cover_raster", &cover_raster, py::arg("covers"), py::arg("window"), py::arg("width"), py::arg("groups"),
               py::arg("jobs"), py::arg("by_class"),
               "The same of launches, as (begin, end, reach, packed, first_row); places are strip * ops + op");
    module.def("cells_raster", &cells_raster, py::arg("cells"), py::arg("window"), py::arg("width"), py::arg("groups"),
               py::arg("jobs"),
               "The same, of one strip, of finer cells: (edge int64[columns + 1], place u8[rows, columns], share, "
               "first_row)");
}

}  // namespace musetrace::bindings
