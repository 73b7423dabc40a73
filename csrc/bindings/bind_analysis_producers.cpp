// Waits and what they waited for, as Python sees them.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/job_axis.h"
#include "analysis/last_producer.h"
#include "bindings/analysis_arrays.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using analysis::JobSpans;
using analysis::ProducerMatch;
using RankArrays = std::array<Ints, 7>;  // begin, end, job, launch, block, iteration, launch_id
using Places = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>;
// begin, end, rank, launch, block, iteration
using JobArrays = std::tuple<Ints, Ints, Places, Places, Places, Places>;

constexpr std::int64_t kIds = 1 << 16;

py::tuple by_job(const std::vector<RankArrays>& ranks, std::int64_t from_ns) {
    std::vector<analysis::RankSpans> spans;
    py::ssize_t size = 0;
    for (const RankArrays& of : ranks) {
        for (std::size_t column = 1; column < 6; ++column) check_length(of[column], of[0].size(), "a column");
        check_below(of[2], kIds, "job");
        check_below(of[3], of[6].size(), "launch");
        spans.push_back({of[0].data(), of[1].data(), of[2].data(), of[3].data(), of[4].data(), of[5].data(),
                         of[6].data(), std::size_t(of[0].size())});
        size += of[0].size();
    }
    Ints begin(size), end(size), first(kIds + 1);
    Places rank(size), launch(size), block(size), iteration(size);
    const analysis::JobAxis axis{begin.mutable_data(),  end.mutable_data(),   rank.mutable_data(),
                                 launch.mutable_data(), block.mutable_data(), iteration.mutable_data(),
                                 first.mutable_data()};
    {
        const py::gil_scoped_release free;
        analysis::by_job(spans, from_ns, axis);
    }
    return py::make_tuple(begin, end, rank, launch, block, iteration, first);
}

void check_places(const Places& places, std::int64_t limit, const char* name) {
    const std::int32_t* values = places.data();
    bool inside = true;
    for (py::ssize_t i = 0; i < places.size(); ++i) inside &= values[i] >= 0 && values[i] < limit;
    if (!inside) throw std::invalid_argument(std::string(name) + " is not below " + std::to_string(limit));
}

JobSpans job_spans(const JobArrays& of, std::int64_t ranks, std::int64_t blocks) {
    const auto& [begin, end, rank, launch, block, iteration] = of;
    check_length(end, begin.size(), "end");
    check_length(rank, begin.size(), "rank");
    check_length(launch, begin.size(), "launch");
    check_length(block, begin.size(), "block");
    check_length(iteration, begin.size(), "iteration");
    check_places(rank, ranks, "rank");
    check_places(launch, kIds, "launch");
    check_places(block, blocks, "block");
    return {begin.data(),
            end.data(),
            rank.data(),
            launch.data(),
            block.data(),
            iteration.data(),
            std::size_t(begin.size())};
}

py::tuple last_producers(const JobArrays& waits, const JobArrays& made, const std::string& scope, bool by_iteration,
                         std::int64_t blocks, std::int64_t apart_ns, const Ints& error_ns, const Bytes& aligned,
                         const Bytes& of_clock) {
    const py::ssize_t ranks = error_ns.size();
    check_length(aligned, ranks, "aligned");
    check_length(of_clock, ranks, "of_clock");
    const analysis::ProducerScope within = scope == "block"  ? analysis::ProducerScope::kBlock
                                           : scope == "rank" ? analysis::ProducerScope::kRank
                                                             : analysis::ProducerScope::kRanks;
    const analysis::MatchRule rule{within,   by_iteration,    std::size_t(ranks), std::size_t(blocks),
                                   apart_ns, error_ns.data(), aligned.data(),     of_clock.data()};
    const JobSpans waiting = job_spans(waits, ranks, blocks), making = job_spans(made, ranks, blocks);
    ProducerMatch found(0);
    {
        const py::gil_scoped_release free;
        found = analysis::last_producers(waiting, making, rule);
    }
    return py::make_tuple(to_array(std::move(found.end)), to_array(std::move(found.who)),
                          to_array(std::move(found.span)), to_array(std::move(found.tied)),
                          to_array(std::move(found.under_way)), to_array(std::move(found.error_ns)));
}

Ints match_sums(const JobArrays& waits, std::int64_t ranks, std::int64_t blocks, const Ints& end, const Bytes& tied,
                const Bytes& under_way, const Ints& error_ns) {
    const JobSpans waiting = job_spans(waits, ranks, blocks);
    const py::ssize_t size = py::ssize_t(waiting.size);
    check_length(end, size, "end");
    check_length(tied, size, "tied");
    check_length(under_way, size, "under_way");
    check_length(error_ns, size, "error_ns");
    Ints sums({py::ssize_t(ranks), py::ssize_t(analysis::kMatchSums)});
    std::int64_t* values = sums.mutable_data();
    std::fill_n(values, sums.size(), 0);
    const analysis::MatchColumns match{end.data(), error_ns.data(), tied.data(), under_way.data()};
    {
        const py::gil_scoped_release free;
        analysis::add_match_sums(waiting, match, values);
    }
    return sums;
}

}  // namespace

void bind_analysis_producers(py::module_ module) {
    module.def("by_job", &by_job, py::arg("ranks"), py::arg("from_ns"),
               "All ranks' (begin, end, job, launch, block, iteration, launch_id), int64, by job: begin, end, rank, "
               "launch id, block, iteration, and where each of 2^16 jobs begins");
    module.def("last_producers", &last_producers, py::arg("waits"), py::arg("made"), py::arg("scope"),
               py::arg("by_iteration"), py::arg("blocks"), py::arg("apart_ns"), py::arg("error_ns"), py::arg("aligned"),
               py::arg("of_clock"),
               "(end, who, span, tied, under_way, error_ns) of each wait; spans as (begin, end, rank, launch, block, "
               "iteration), the last three arguments by rank");
    module.def(
        "match_sums", &match_sums, py::arg("waits"), py::arg("ranks"), py::arg("blocks"), py::arg("end"),
        py::arg("tied"), py::arg("under_way"), py::arg("error_ns"),
        "int64[ranks, 7] by the wait's rank: matched, tied, under way; before, after, under way and error in ns");
}

}  // namespace musetrace::bindings
