// The compiled module that is there when nvcc was found at build time. Imports without a GPU; its calls say when there
// is none.
#include <cuda_runtime_api.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <map>
#include <string>

#include "abi/muse_layer_jobs.h"
#include "probe/stamp_probe.cuh"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

void check(int error, const char* what) {
    if (error == cudaSuccess) return;
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

class DeviceMemory {
  public:
    explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
        check(cudaMalloc(&data_, bytes), "allocating device memory");
        check(cudaMemset(data_, 0, bytes), "clearing device memory");
    }
    ~DeviceMemory() { cudaFree(data_); }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }
    template <class T>
    py::array_t<T> to_host() const {
        py::array_t<T> out(static_cast<py::ssize_t>(bytes_ / sizeof(T)));
        check(cudaMemcpy(out.mutable_data(), data_, bytes_, cudaMemcpyDeviceToHost), "copying from the device");
        return out;
    }

  private:
    std::size_t bytes_;
    void* data_ = nullptr;
};

int device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

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
}  // namespace musetrace::bindings

PYBIND11_MODULE(_cuda, module) {
    using namespace musetrace::bindings;
    module.doc() = "musetrace CUDA part: probes of the stamps and their clock";
    module.def("device_count", &device_count, "CUDA devices that can be used; 0 without a driver");
    module.def("stamp_probe", &stamp_probe, py::arg("mode"), py::arg("blocks"), py::arg("epoch"),
               "uint8[region_bytes]: the stamp region after a kernel stamped every job of the Muse layer once");
    module.def("clock_reads", &clock_reads, py::arg("count"), "uint64[count]: successive reads of %globaltimer, ns");
}
