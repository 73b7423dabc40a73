// The graph of a launch, as Python sees it: arrays in, arrays out.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "analysis/span_graph.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using analysis::Place;
using analysis::SpanGraph;
using analysis::Time;

template <class T>
using Column = py::array_t<T, py::array::c_style | py::array::forcecast>;

// `values[i]` in [least, limit): what indexes memory.
template <class T>
const T* checked(const Column<T>& values, py::ssize_t size, std::int64_t least, std::int64_t limit, const char* name) {
    if (values.ndim() != 1 || values.shape(0) != size) {
        throw std::invalid_argument(std::string(name) + " is not a list of " + std::to_string(size));
    }
    for (py::ssize_t at = 0; at < size; ++at) {
        if (values.data()[at] < least || values.data()[at] >= limit) {
            throw std::invalid_argument(std::string(name) + " is out of range");
        }
    }
    return values.data();
}

constexpr std::int64_t kAny = std::int64_t{1} << 31;
constexpr std::int64_t kTimes = std::int64_t{1} << 61;

std::vector<analysis::JobFacts> job_facts(const Column<std::int32_t>& rows) {
    if (rows.ndim() != 2 || rows.shape(1) != 5) throw std::invalid_argument("jobs is not an array of five columns");
    const auto row = rows.unchecked<2>();
    std::vector<analysis::JobFacts> jobs;
    for (py::ssize_t job = 0; job < rows.shape(0); ++job) {
        if (row(job, 0) < 0 || row(job, 0) > 2 || row(job, 1) < 0 || row(job, 1) > 2 || row(job, 4) < analysis::kNone) {
            throw std::invalid_argument("a job has a class, scope or awaited job that there is not");
        }
        jobs.push_back({static_cast<analysis::SpanClass>(row(job, 0)), static_cast<analysis::Scope>(row(job, 1)),
                        row(job, 2) != 0, row(job, 3) != 0, row(job, 4)});
    }
    return jobs;
}

SpanGraph make_graph(const Column<Time>& begin, const Column<Time>& end, const py::dict& columns,
                     const Column<std::int32_t>& jobs, const Column<Time>& windows, Time tick_ns) {
    const py::ssize_t size = begin.size();
    if (size >= kAny / 8) throw std::invalid_argument("a launch has too many spans");
    const auto column = [&](const char* name) { return columns[name].cast<Column<Place>>(); };
    const auto job = column("job"), rank = column("rank"), block = column("block"), role = column("role"),
               warp = column("warp"), iteration = column("iteration"), producer = column("producer");
    const auto under_way = columns["under_way"].cast<Column<std::uint8_t>>();
    if (windows.ndim() != 2 || windows.shape(1) != 2) throw std::invalid_argument("windows is not an array of pairs");
    std::vector<analysis::RankWindow> ranks;
    for (py::ssize_t at = 0; at < windows.shape(0); ++at) ranks.push_back({windows.at(at, 0), windows.at(at, 1)});
    const analysis::LaunchSpans spans{static_cast<std::size_t>(size),
                                      checked(begin, size, -kTimes, kTimes, "begin"),
                                      checked(end, size, -kTimes, kTimes, "end"),
                                      checked(job, size, 0, jobs.shape(0), "job"),
                                      checked(rank, size, 0, windows.shape(0), "rank"),
                                      checked(block, size, 0, kAny, "block"),
                                      checked(role, size, 0, kAny, "role"),
                                      checked(warp, size, 0, kAny, "warp"),
                                      checked(iteration, size, 0, 1 << 16, "iteration"),
                                      checked(producer, size, analysis::kNone, size, "producer"),
                                      checked(under_way, size, 0, 2, "under_way")};
    std::vector<analysis::JobFacts> facts = job_facts(jobs);
    for (py::ssize_t at = 0; at < size; ++at) {
        const Place made = spans.producer[at];
        if (made != analysis::kNone && facts[static_cast<std::size_t>(spans.job[at])].awaits != spans.job[made]) {
            throw std::invalid_argument("a span's producer is not of the job that it awaits");
        }
        if (spans.end[at] < spans.begin[at]) throw std::invalid_argument("a span ends before it begins");
    }
    const py::gil_scoped_release free;
    return SpanGraph(spans, std::move(facts), std::move(ranks), tick_ns);
}

py::tuple path(const SpanGraph& graph, Place rank, Time begin_ns, Time end_ns) {
    std::vector<analysis::PathStep> steps;
    {
        const py::gil_scoped_release free;
        steps = graph.path(rank, begin_ns, end_ns);
    }
    const auto size = static_cast<py::ssize_t>(steps.size());
    Column<std::uint8_t> step(size);
    Column<Place> span(size), cause(size);
    Column<Time> from(size), until(size);
    for (py::ssize_t at = 0; at < size; ++at) {
        const analysis::PathStep& one = steps[static_cast<std::size_t>(size - 1 - at)];
        step.mutable_at(at) = static_cast<std::uint8_t>(one.step);
        span.mutable_at(at) = one.span;
        cause.mutable_at(at) = one.cause;
        from.mutable_at(at) = one.from;
        until.mutable_at(at) = one.until;
    }
    return py::make_tuple(step, span, cause, from, until);
}

Column<Time> replay(const SpanGraph& graph, const Column<std::int64_t>& parts, std::int64_t whole,
                    const Column<std::uint8_t>& gone) {
    const auto jobs = static_cast<py::ssize_t>(graph.jobs());
    if (whole < 1) throw std::invalid_argument("whole is not positive");
    const analysis::Change change{checked(parts, jobs, 0, std::int64_t{1} << 24, "parts"), whole,
                                  checked(gone, jobs, 0, 2, "gone")};
    std::vector<Time> ends;
    {
        const py::gil_scoped_release free;
        ends = graph.replay(change);
    }
    return Column<Time>(static_cast<py::ssize_t>(ends.size()), ends.data());
}

}  // namespace

void bind_analysis_critical(py::module_ module) {
    py::class_<SpanGraph>(module, "SpanGraph")
        .def(py::init(&make_graph), py::arg("begin"), py::arg("end"), py::arg("columns"), py::arg("jobs"),
             py::arg("windows"), py::arg("tick_ns"))
        .def_property_readonly("dropped", &SpanGraph::dropped)
        .def("path", &path, py::arg("rank"), py::arg("begin_ns"), py::arg("end_ns"))
        .def("replay", &replay, py::arg("parts"), py::arg("whole"), py::arg("gone"));
    py::list steps;
    for (const char* name : analysis::kStepNames) steps.append(name);
    module.attr("PATH_STEPS") = py::tuple(steps);
    module.attr("NO_TIME") = analysis::kNoTime;
}

}  // namespace musetrace::bindings
