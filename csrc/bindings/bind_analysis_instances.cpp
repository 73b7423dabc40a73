// Questions about each block of each launch, and the spans of a (rank, step) that they are asked of.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

#include "analysis/busy_unions.h"
#include "analysis/engine_unions.h"
#include "analysis/idle_behind.h"
#include "analysis/idle_pieces.h"
#include "analysis/launch_cover.h"
#include "analysis/op_extents.h"
#include "analysis/op_unions.h"
#include "bindings/analysis_arrays.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using Shorts = py::array_t<std::int16_t, py::array::c_style | py::array::forcecast>;

constexpr py::ssize_t kJobs = 1 << 16;

// One column of the lists that some threads made.
template <typename Found>
Ints joined(std::vector<Found>& parts, std::vector<std::int64_t> Found::* column) {
    std::vector<std::int64_t> all = std::move(parts[0].*column);
    for (std::size_t part = 1; part < parts.size(); ++part) {
        all.insert(all.end(), (parts[part].*column).begin(), (parts[part].*column).end());
    }
    return to_array(std::move(all));
}

// Keeps the launches' times with the spans that were cut by them.
class Instances {
  public:
    Instances(const SpanArrays& arrays, std::int64_t blocks)
        : launch_begin_(arrays.launch_begin), launch_end_(arrays.launch_end) {
        if (blocks < 0) throw std::invalid_argument("blocks is negative");
        arrays.check(blocks);
        blocks_ = std::size_t(blocks);
        const analysis::SpanColumns spans = arrays.spans();
        const analysis::LaunchColumns of_launches = launches();
        const py::gil_scoped_release free;
        spans_ = analysis::InstanceSpans(spans, of_launches, blocks_);
    }

    py::tuple idle_pieces(const Ints& instances, const Bytes& classes) const {
        check_length(classes, kJobs, "classes");
        check_below(instances, count(), "instances");
        std::vector<analysis::IdlePieces> parts;
        {
            const analysis::LaunchColumns of_launches = launches();
            const std::int64_t* chosen = instances.data();
            const std::size_t size = std::size_t(instances.size());
            const auto* of_jobs = reinterpret_cast<const analysis::IdleClass*>(classes.data());
            const py::gil_scoped_release free;
            parts = analysis::idle_pieces(spans_, of_launches, chosen, size, of_jobs);
        }
        using analysis::IdlePieces;
        return py::make_tuple(joined(parts, &IdlePieces::instance), joined(parts, &IdlePieces::cause),
                              joined(parts, &IdlePieces::length_ns), joined(parts, &IdlePieces::contested_ns));
    }

    py::tuple busy_unions(const Bytes& first_class) const {
        check_length(first_class, kJobs, "first_class");
        const std::vector<py::ssize_t> shape{py::ssize_t(analysis::kUnions), count()};
        py::array_t<std::int64_t> covered(shape), pieces(shape);
        py::array_t<std::uint8_t> has_own(shape);
        analysis::BusyUnions found{};
        for (std::size_t of = 0; of < analysis::kUnions; ++of) {
            found.covered_ns[of] = covered.mutable_data(py::ssize_t(of), 0);
            found.pieces[of] = pieces.mutable_data(py::ssize_t(of), 0);
            found.has_own[of] = has_own.mutable_data(py::ssize_t(of), 0);
        }
        const std::uint8_t* classes = first_class.data();
        {
            const py::gil_scoped_release free;
            for (std::size_t of = 0; of < analysis::kUnions; ++of) {
                std::fill_n(found.covered_ns[of], count(), 0);
                std::fill_n(found.pieces[of], count(), 0);
                std::fill_n(found.has_own[of], count(), std::uint8_t(0));
            }
            analysis::busy_unions(spans_, classes, found);
        }
        return py::make_tuple(covered, pieces, has_own);
    }

    py::list engine_unions(const Bytes& engine_of_job, const Bytes& sets) const {
        check_length(engine_of_job, kJobs, "engine_of_job");
        check_length(sets, sets.size(), "sets");
        std::vector<analysis::EngineUnion> found;
        {
            const std::size_t of_launches = std::size_t(launch_begin_.size()), size = std::size_t(sets.size());
            const std::uint8_t *of_jobs = engine_of_job.data(), *of_sets = sets.data();
            const py::gil_scoped_release free;
            found = analysis::engine_unions(spans_, of_launches, of_jobs, of_sets, size);
        }
        py::list unions;
        for (analysis::EngineUnion& of : found) {
            unions.append(py::make_tuple(to_array(std::move(of.begin)), to_array(std::move(of.end)),
                                         to_array(std::move(of.stamps))));
        }
        return unions;
    }

    py::tuple idle_behind(const Ints& instances, const Ints& row_of_job, std::int64_t rows) const {
        check_length(row_of_job, kJobs, "row_of_job");
        check_rows(row_of_job, rows);
        check_below(instances, count(), "instances");
        std::vector<analysis::IdleBehind> parts;
        {
            const analysis::LaunchColumns of_launches = launches();
            const std::int64_t *chosen = instances.data(), *of_jobs = row_of_job.data();
            const std::size_t size = std::size_t(instances.size());
            const py::gil_scoped_release free;
            parts = analysis::idle_behind(spans_, of_launches, chosen, size, of_jobs, std::size_t(rows));
        }
        using analysis::IdleBehind;
        return py::make_tuple(joined(parts, &IdleBehind::instance), joined(parts, &IdleBehind::row),
                              joined(parts, &IdleBehind::behind_ns), joined(parts, &IdleBehind::idle_ns),
                              joined(parts, &IdleBehind::differences));
    }

    py::tuple op_unions(const Ints& row_of_job, std::int64_t rows) const {
        check_length(row_of_job, kJobs, "row_of_job");
        check_rows(row_of_job, rows);
        std::vector<analysis::OpUnions> parts;
        {
            const std::int64_t* of_jobs = row_of_job.data();
            const py::gil_scoped_release free;
            parts = analysis::op_unions(spans_, of_jobs, std::size_t(rows));
        }
        using analysis::OpUnions;
        return py::make_tuple(joined(parts, &OpUnions::instance), joined(parts, &OpUnions::row),
                              joined(parts, &OpUnions::covered_ns), joined(parts, &OpUnions::pieces));
    }

    // `place_of_job` i16[65536], -1 for a job that is not drawn; the op and class of each place.
    py::tuple launch_cover(const Shorts& place_of_job, const Bytes& class_of, const Bytes& op_of) const {
        check_length(place_of_job, kJobs, "place_of_job");
        check_length(op_of, class_of.size(), "op_of");
        const std::int16_t* places = place_of_job.data();
        const std::uint8_t* classes = class_of.data();
        const auto too_many = [](std::uint8_t of) { return of >= analysis::kCoverClasses; };
        if (*std::max_element(places, places + kJobs) >= class_of.size() ||
            std::any_of(classes, classes + class_of.size(), too_many)) {
            throw std::invalid_argument("places or classes of jobs are not below their numbers");
        }
        const analysis::RasterJobs jobs{
            places, classes, op_of.data(), classes, std::size_t(class_of.size()), analysis::kCoverClasses};
        analysis::LaunchCover found;
        {
            const analysis::LaunchColumns of_launches = launches();
            const py::gil_scoped_release free;
            found = analysis::launch_cover(spans_, of_launches, jobs);
        }
        return py::make_tuple(to_array(std::move(found.instance)), to_array(std::move(found.packed)));
    }

    static void check_rows(const Ints& row_of_job, std::int64_t rows) {
        const std::int64_t* values = row_of_job.data();
        for (py::ssize_t i = 0; i < row_of_job.size(); ++i) {
            if (values[i] >= rows) throw std::invalid_argument("row_of_job is not below " + std::to_string(rows));
        }
    }

  private:
    analysis::LaunchColumns launches() const {
        return {launch_begin_.data(), launch_end_.data(), std::size_t(launch_begin_.size())};
    }
    py::ssize_t count() const { return py::ssize_t(blocks_) * launch_begin_.size(); }

    Ints launch_begin_, launch_end_;
    std::size_t blocks_ = 0;
    analysis::InstanceSpans spans_;
};

py::tuple op_extents(const SpanArrays& arrays, std::int64_t blocks, const Ints& row_of_job, std::int64_t rows) {
    if (blocks < 0) throw std::invalid_argument("blocks is negative");
    arrays.check(blocks);
    check_length(row_of_job, kJobs, "row_of_job");
    Instances::check_rows(row_of_job, rows);
    analysis::OpExtents found;
    {
        const analysis::SpanColumns spans = arrays.spans();
        const std::int64_t* of_jobs = row_of_job.data();
        const std::size_t launches = std::size_t(arrays.launch_begin.size());
        const py::gil_scoped_release free;
        found = analysis::op_extents(spans, of_jobs, std::size_t(rows), launches, std::size_t(blocks));
    }
    return py::make_tuple(to_array(std::move(found.row)), to_array(std::move(found.launch)),
                          to_array(std::move(found.block)), to_array(std::move(found.begin)),
                          to_array(std::move(found.end)));
}

SpanArrays arrays_of(const py::tuple& columns) {
    if (columns.size() != 8) throw std::invalid_argument("spans are eight columns");
    return {columns[0].cast<Ints>(), columns[1].cast<Ints>(), columns[2].cast<Ints>(), columns[3].cast<Ints>(),
            columns[4].cast<Ints>(), columns[5].cast<Ints>(), columns[6].cast<Ints>(), columns[7].cast<Ints>()};
}

}  // namespace

void bind_analysis_instances(py::module_ module) {
    module.attr("HEAD") = analysis::kHead;
    module.attr("TAIL") = analysis::kTail;
    module.attr("LOAD_ONLY") = analysis::kLoadOnly;
    module.attr("UNLABELLED") = analysis::kUnlabelled;
    module.attr("WHOLE_LAUNCH") = analysis::kWholeLaunch;
    py::class_<Instances>(module, "Instances",
                          "The spans of one (rank, step) by instance = block * launches + launch, cut at the launch")
        .def(py::init(
                 [](const py::tuple& columns, std::int64_t blocks) { return Instances(arrays_of(columns), blocks); }),
             py::arg("columns"), py::arg("blocks"),
             "`columns`, int64: begin, end, job, launch, block, warp; launch_begin, launch_end")
        .def("idle_pieces", &Instances::idle_pieces, py::arg("instances"), py::arg("classes"),
             "(instance, cause, length_ns, contested_ns) of each piece, int64; `classes` is u8[65536]: 0 none, "
             "1 busy, 2 loading, 3 a wait, 4 a wait for a wait")
        .def("busy_unions", &Instances::busy_unions, py::arg("first_class"),
             "(covered_ns, pieces, has_own), [3, instances], of the classes busy, loading, waiting, each with those "
             "before it; `first_class` is u8[65536], 3 for none")
        .def("op_unions", &Instances::op_unions, py::arg("row_of_job"), py::arg("rows"),
             "(instance, row, covered_ns, pieces), int64, of each row that an instance has spans of")
        .def("engine_unions", &Instances::engine_unions, py::arg("engine_of_job"), py::arg("sets"),
             "(begin, end, stamps), int64, of each set of engines: the pieces of its union, and by launch of how many "
             "differences of stamps it is made; `engine_of_job` is u8[65536], `sets` u8, a bit for each engine")
        .def("launch_cover", &Instances::launch_cover, py::arg("place_of_job"), py::arg("class_of"), py::arg("op_of"),
             "(instance, packed), int64, of each that has spans: for each of four classes 16 bits, the op that takes "
             "most of it, and the share of the launch that is covered")
        .def("idle_behind", &Instances::idle_behind, py::arg("instances"), py::arg("row_of_job"), py::arg("rows"),
             "(instance, row, behind_ns, idle_ns, differences), int64, of whole launches and behind each busy row");
    module.def(
        "op_extents",
        [](const py::tuple& columns, std::int64_t blocks, const Ints& row_of_job, std::int64_t rows) {
            return op_extents(arrays_of(columns), blocks, row_of_job, rows);
        },
        py::arg("columns"), py::arg("blocks"), py::arg("row_of_job"), py::arg("rows"),
        "(row, launch, block, begin, end), int64, of each row that a block has spans of in a launch");
}

}  // namespace musetrace::bindings
