// The ABI as Python sees it: dtypes, constants and job tables, all read from csrc/include/musetrace/abi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "musetrace/abi/frame.h"
#include "musetrace/abi/job_table_json.h"
#include "musetrace/abi/muse_draft_jobs.h"
#include "musetrace/abi/muse_hopper_jobs.h"
#include "musetrace/abi/muse_layer_jobs.h"
#include "musetrace/abi/muse_step_jobs.h"
#include "musetrace/abi/wait_report.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using RoleTuple = std::tuple<std::string, std::uint8_t, std::uint8_t, std::uint32_t, bool>;
using JobTuple = std::tuple<std::string, std::string, std::uint8_t, std::uint8_t, std::optional<std::uint16_t>,
                            std::uint16_t, bool, bool, std::optional<std::string>>;

abi::JobExtra scope_of(const std::optional<std::string>& name) {
    constexpr abi::JobExtra kScopes[] = {abi::kFromBlock, abi::kFromRank, abi::kFromRanks};
    if (!name) return abi::kSpan;
    for (std::size_t i = 0; i < std::size(kScopes); ++i) {
        if (*name == abi::kScopeNames[i]) return kScopes[i];
    }
    throw py::value_error("a wait's scope is block, rank or ranks, not " + *name);
}

// A table that Python declares. The strings live as long as the lists.
py::str declared_job_table(const std::string& name, std::uint32_t warps_per_block, const std::vector<RoleTuple>& roles,
                           const std::vector<JobTuple>& jobs) {
    std::vector<abi::Role> role_rows;
    for (const auto& [role, first, last, stamping, owned_by_block] : roles) {
        role_rows.push_back({role.c_str(), first, last, stamping, owned_by_block ? abi::kBlock : abi::kWarp});
    }
    std::vector<abi::Job> job_rows;
    for (const auto& [job, op, kind, role, awaits, iterations, instant, payload, scope] : jobs) {
        const abi::JobExtra extra =
            (instant ? abi::kInstant : abi::kSpan) | (payload ? abi::kPayload : abi::kSpan) | scope_of(scope);
        job_rows.push_back({job.c_str(), op.c_str(), static_cast<abi::JobKind>(kind), role,
                            awaits.value_or(abi::kNoJob), iterations, extra});
    }
    const abi::TableView table{name.c_str(),     warps_per_block,
                               role_rows.data(), std::uint32_t(role_rows.size()),
                               job_rows.data(),  std::uint32_t(job_rows.size())};
    if (!abi::roles_are_sound(table)) {
        throw py::value_error("a role's warps are not warps of the block, or a warp stamps in two roles");
    }
    if (!abi::jobs_are_sound(table)) {
        throw py::value_error(
            "a wait names no job to wait for, another job names one or a scope, or a job has no iterations");
    }
    if (abi::count_slots(table) > abi::kMaxSlots) {
        throw py::value_error("a block would have more than 65,534 slots: fewer iterations, or fewer stamping warps");
    }
    return abi::job_table_json(table);
}

void bind_frame(py::module_& module) {
    PYBIND11_NUMPY_DTYPE(abi::FileHeader, magic, major, minor, flags, recording_id, crc);
    PYBIND11_NUMPY_DTYPE(abi::ChunkHeader, magic, type, length, seq, crc);
    module.attr("file_header_dtype") = py::dtype::of<abi::FileHeader>();
    module.attr("chunk_header_dtype") = py::dtype::of<abi::ChunkHeader>();
    module.attr("FILE_MAGIC") = py::bytes(abi::kFileMagic, sizeof abi::kFileMagic);
    module.attr("FORMAT_MAJOR") = abi::kFormatMajor;
    module.attr("FORMAT_MINOR") = abi::kFormatMinor;
    module.attr("CHUNK_MAGIC") = abi::kChunkMagic;
    module.attr("MAX_CHUNK_BYTES") = abi::kMaxChunkBytes;
    py::dict types;
    types["META"] = static_cast<int>(abi::ChunkType::kMeta);
    types["CLOCK"] = static_cast<int>(abi::ChunkType::kClock);
    types["STAMPS"] = static_cast<int>(abi::ChunkType::kStamps);
    types["STEP"] = static_cast<int>(abi::ChunkType::kStep);
    types["LOSS"] = static_cast<int>(abi::ChunkType::kLoss);
    types["REPORT"] = static_cast<int>(abi::ChunkType::kReport);
    types["END"] = static_cast<int>(abi::ChunkType::kEnd);
    module.attr("CHUNK_TYPES") = types;
}

}  // namespace

void bind_abi(py::module_ module) {
    PYBIND11_NUMPY_DTYPE(abi::BlockHeader, time_ns, epoch, sm, overflow, reserved);
    PYBIND11_NUMPY_DTYPE(abi::RegionHeader, blocks, slots, slot_bytes, epoch, launches, dropped_blocks, mismatch);
    PYBIND11_NUMPY_DTYPE(abi::WaitReport, claimed, abort, site, rank, block, warp, want, got, waited_ns);
    module.attr("block_header_dtype") = py::dtype::of<abi::BlockHeader>();
    module.attr("region_header_dtype") = py::dtype::of<abi::RegionHeader>();
    module.attr("wait_report_dtype") = py::dtype::of<abi::WaitReport>();
    module.attr("STAMP_ABI_VERSION") = abi::kStampAbiVersion;
    module.attr("WIDEN_BACK_NS") = abi::kWidenBackNs;
    module.attr("REGION_ALIGN") = abi::kRegionAlign;
    py::list kinds;
    for (const char* kind : abi::kJobKindNames) kinds.append(kind);
    module.attr("JOB_KINDS") = py::tuple(kinds);
    module.def(
        "stamp_layout",
        [](std::uint32_t blocks, std::uint32_t slots, std::uint32_t slot_bytes) {
            const abi::StampLayout layout{blocks, slots, slot_bytes};
            return py::make_tuple(layout.headers_offset(), layout.slots_offset(), layout.region_bytes());
        },
        py::arg("blocks"), py::arg("slots"), py::arg("slot_bytes"),
        "(headers_offset, slots_offset, region_bytes) of one rank's stamp region, in bytes");
    module.def("region_shape", &abi::region_shape, py::arg("slots"), py::arg("slot_bytes"),
               "What a kernel's table and mode ask of a region, as RegionHeader.mismatch has it");
    module.def("widen", &abi::widen, py::arg("low"), py::arg("header_ns"), "Full 64-bit time in ns of a 4-byte slot");
    const py::object loads = py::module_::import("json").attr("loads");
    py::dict tables;
    tables[abi::MuseLayer::kName] = loads(abi::job_table_json<abi::MuseLayer>());
    tables[abi::MuseHopper::kName] = loads(abi::job_table_json<abi::MuseHopper>());
    tables[abi::MuseDraft::kName] = loads(abi::job_table_json<abi::MuseDraft>());
    tables[abi::MuseStep::kName] = loads(abi::job_table_json<abi::MuseStep>());
    module.attr("job_tables") = tables;
    module.def("declared_job_table", &declared_job_table, py::arg("name"), py::arg("warps_per_block"), py::arg("roles"),
               py::arg("jobs"),
               "The JSON of a table of roles (name, first warp, last warp, stamping warps as bits, owned by the block) "
               "and jobs (name, op, index in JOB_KINDS, role, awaited job or None, iterations, instant, payload, scope "
               "of a wait or None)");
    bind_frame(module);
}

}  // namespace musetrace::bindings
