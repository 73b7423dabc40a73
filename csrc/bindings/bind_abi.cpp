// The ABI as Python sees it: dtypes, constants and job tables, all read from csrc/include/musetrace/abi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "musetrace/abi/frame.h"
#include "musetrace/abi/muse_hopper_jobs.h"
#include "musetrace/abi/muse_layer_jobs.h"
#include "musetrace/abi/wait_report.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

template <class Table, class SlotMap>
py::dict job_table(const SlotMap& map) {
    py::list jobs;
    for (const abi::Job& job : Table::kJobs) {
        const abi::Role& role = Table::kRoles[job.role];
        py::list stamped_by;
        for (std::uint32_t warp = 0; warp < Table::kWarpsPerBlock; ++warp) {
            if (role.stamping_warps >> warp & 1u) stamped_by.append(warp);
        }
        py::dict entry;
        entry["name"] = job.name;
        entry["op"] = job.op;
        entry["kind"] = abi::kJobKindNames[static_cast<int>(job.kind)];
        entry["role"] = role.name;
        entry["warps"] = py::make_tuple(role.first_warp, role.last_warp);
        entry["stamped_by"] = stamped_by;
        entry["awaits"] = job.awaits == abi::kNoJob ? py::object(py::none()) : py::int_(job.awaits);
        jobs.append(entry);
    }
    std::vector<int> job_of_pair(map.total / 2, -1), warp_of_pair(map.total / 2, -1);
    for (std::uint32_t job = 0; job < Table::kNumJobs; ++job) {
        for (std::uint32_t warp = 0; warp < Table::kWarpsPerBlock; ++warp) {
            if (map.slot_of[job][warp] == abi::kNoJob) continue;
            job_of_pair[map.slot_of[job][warp] / 2] = static_cast<int>(job);
            warp_of_pair[map.slot_of[job][warp] / 2] = static_cast<int>(warp);
        }
    }
    py::dict table;
    table["name"] = Table::kName;
    table["warps_per_block"] = Table::kWarpsPerBlock;
    table["slots"] = map.total;
    table["jobs"] = jobs;
    table["job_of_pair"] = job_of_pair;
    table["warp_of_pair"] = warp_of_pair;
    return table;
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
    PYBIND11_NUMPY_DTYPE(abi::WaitReport, claimed, abort, site, rank, block, warp, want, got, waited_ns);
    module.attr("block_header_dtype") = py::dtype::of<abi::BlockHeader>();
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
            return py::make_tuple(layout.slots_offset(), layout.region_bytes());
        },
        py::arg("blocks"), py::arg("slots"), py::arg("slot_bytes"),
        "(slots_offset, region_bytes) of one rank's stamp region, in bytes");
    module.def("widen", &abi::widen, py::arg("low"), py::arg("header_ns"), "Full 64-bit time in ns of a 4-byte slot");
    py::dict tables;
    tables[abi::MuseLayer::kName] = job_table<abi::MuseLayer>(abi::kSlotMap<abi::MuseLayer>);
    tables[abi::MuseHopper::kName] = job_table<abi::MuseHopper>(abi::kSlotMap<abi::MuseHopper>);
    module.attr("job_tables") = tables;
    bind_frame(module);
}

}  // namespace musetrace::bindings
