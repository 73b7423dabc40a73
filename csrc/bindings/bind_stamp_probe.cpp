// Probes of the stamps and their clock.
#include <pybind11/pybind11.h>

#include <map>
#include <string>

#include "bindings/cuda_memory.h"
#include "musetrace/abi/muse_layer_jobs.h"
#include "probe/stamp_probe.cuh"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

py::array_t<std::uint8_t> stamp_probe(const std::string& mode, std::uint32_t blocks, std::uint32_t epoch) {
    static const std::map<std::string, abi::StampMode> modes{
        {"off", abi::StampMode::kOff}, {"store", abi::StampMode::kStore}, {"register", abi::StampMode::kRegister}};
    const abi::StampMode build = modes.at(mode);
    const abi::StampLayout layout{blocks, abi::kSlotMap<abi::MuseLayer>.total, abi::slot_bytes(build)};
    const DeviceMemory region(layout.region_bytes());
    check(probe::run_stamp_probe(build, blocks, epoch, region.as<char>()), "running the stamp probe");
    return region.to_host<std::uint8_t>();
}

py::array_t<std::uint64_t> clock_reads(std::uint32_t count) {
    const DeviceMemory times(std::size_t{count} * 8);
    check(probe::read_clock(times.as<std::uint64_t>(), count), "reading the GPU clock");
    return times.to_host<std::uint64_t>();
}

}  // namespace

void bind_stamp_probe(py::module_& module) {
    module.def("stamp_probe", &stamp_probe, py::arg("mode"), py::arg("blocks"), py::arg("epoch"),
               "uint8[region_bytes]: the stamp region after a kernel stamped every job of the Muse layer once");
    module.def("clock_reads", &clock_reads, py::arg("count"), "uint64[count]: successive reads of %globaltimer, ns");
}

}  // namespace musetrace::bindings
