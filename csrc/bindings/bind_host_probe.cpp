// The measurements of `musetrace probe --device cpu`, as arrays of raw samples.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "probe/host_probe.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

constexpr std::size_t kMostSamples = 1 << 20;

// `measure(count)` gives count rows of so many columns; the last axis is left out where there is one column.
template <class Measure>
py::array_t<std::uint64_t> rows(std::size_t count, std::size_t columns, Measure measure) {
    if (count < 1 || count > kMostSamples) throw std::invalid_argument("choose 1 to 1048576 samples");
    std::vector<std::uint64_t> values;
    {
        const py::gil_scoped_release release;
        values = measure(count);
    }
    std::vector<std::size_t> shape{count};
    if (columns > 1) shape.push_back(columns);
    py::array_t<std::uint64_t> out(shape);
    std::copy(values.begin(), values.end(), out.mutable_data());
    return out;
}

}  // namespace

void bind_host_probe(py::module_ module) {
    module.attr("READS") = probe::kHostReads;
    module.attr("STAMPS") = probe::kHostStamps;
    module.attr("TRIPS") = probe::kHostTrips;
    py::list cases;
    for (const char* name : probe::kHostStampCases) cases.append(name);
    module.attr("STAMP_CASES") = py::tuple(cases);
    module.def(
        "clock_reads", [](std::size_t count) { return rows(count, 1, &probe::read_host_clock); }, py::arg("count"),
        "uint64[count]: successive reads of CLOCK_MONOTONIC, ns");
    module.def(
        "clock_read_times", [](std::size_t samples) { return rows(samples, 1, &probe::time_host_reads); },
        py::arg("samples"), "uint64[samples]: ns of READS reads of CLOCK_MONOTONIC");
    module.def(
        "stamp_times",
        [](std::size_t samples) { return rows(samples, std::size(probe::kHostStampCases), &probe::time_host_stamps); },
        py::arg("samples"), "uint64[samples, STAMP_CASES]: ns of STAMPS stamps, the builds by turns");
    module.def(
        "unix_brackets", [](std::size_t rounds) { return rows(rounds, 3, &probe::host_unix_brackets); },
        py::arg("rounds"), "uint64[rounds, 3] ns: CLOCK_MONOTONIC, then CLOCK_REALTIME, then CLOCK_MONOTONIC");
    module.def(
        "hop_times", [](std::size_t samples) { return rows(samples, 1, &probe::time_host_hops); }, py::arg("samples"),
        "uint64[samples]: ns of TRIPS round trips of a word between two threads");
}

}  // namespace musetrace::bindings
