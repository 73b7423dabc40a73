// Spans on their way from the store to the analysis.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <optional>

#include "analysis/sound_spans.h"
#include "bindings/analysis_arrays.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

template <typename Value>
using Column = py::array_t<Value, py::array::c_style | py::array::forcecast>;

constexpr std::int64_t kIds = 1 << 16;

template <typename Time>
py::tuple sound_spans(const Column<Time>& begin, const Column<Time>& dur, const Column<std::uint16_t>& job,
                      const Column<std::uint16_t>& launch, const Column<std::uint16_t>& block, const Bytes& warp,
                      const Bytes& flag, const std::optional<Column<std::uint16_t>>& iteration,
                      const Ints& launch_place, std::int64_t launches, const Bytes& instant, std::int64_t blocks,
                      std::int64_t tick_ns) {
    const py::ssize_t size = begin.size();
    const std::array<py::array, 6> columns{dur, job, launch, block, warp, flag};
    for (const py::array& column : columns) check_length(column, size, "a column");
    if (iteration) check_length(*iteration, size, "iteration");
    check_length(launch_place, kIds, "launch_place");
    check_length(instant, kIds, "instant");
    const std::int64_t* places = launch_place.data();
    if (std::any_of(places, places + kIds, [&](std::int64_t place) { return place >= launches; })) {
        throw std::invalid_argument("launch_place is not below the number of launches");
    }
    std::array<Ints, 7> kept{Ints(size), Ints(size), Ints(size), Ints(size), Ints(size), Ints(size), Ints(size)};
    Ints flagged(launches), below_tick(launches);
    std::fill_n(flagged.mutable_data(), launches, 0);
    std::fill_n(below_tick.mutable_data(), launches, 0);
    const analysis::StoredSpans<Time> stored{
        begin.data(),     dur.data(),  job.data(),  launch.data(),
        block.data(),     warp.data(), flag.data(), iteration ? iteration->data() : nullptr,
        std::size_t(size)};
    const analysis::SoundSpans found{kept[0].mutable_data(), kept[1].mutable_data(), kept[2].mutable_data(),
                                     kept[3].mutable_data(), kept[4].mutable_data(), kept[5].mutable_data(),
                                     kept[6].mutable_data(), flagged.mutable_data(), below_tick.mutable_data()};
    const analysis::SoundRule rule{places, instant.data(), blocks, tick_ns};
    std::size_t count = 0;
    {
        const py::gil_scoped_release free;
        count = analysis::sound_spans(stored, rule, found);
    }
    if (py::ssize_t(count) < size) {
        for (Ints& column : kept) column.resize({py::ssize_t(count)});
    }
    return py::make_tuple(kept[0], kept[1], kept[2], kept[3], kept[4], kept[5], kept[6], flagged, below_tick);
}

constexpr const char* kDoc =
    "(begin, end, job, launch, block, warp, iteration) of the sound spans of the launches that `launch_place` has a "
    "place of, and by launch the spans left out and those shorter than the tick; int64";

}  // namespace

void bind_analysis_spans(py::module_ module) {
    module.def("sound_spans", &sound_spans<std::uint32_t>, kDoc);
    module.def("sound_spans_wide", &sound_spans<std::uint64_t>, kDoc);
}

}  // namespace musetrace::bindings
