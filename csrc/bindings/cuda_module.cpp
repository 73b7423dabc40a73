// The compiled module that is there when nvcc was found at build time. Imports without a GPU; its calls say when there
// is none. One bind function per area.
#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>

#include "bindings/cuda_memory.h"

namespace musetrace::bindings {

void bind_stamp_probe(pybind11::module_& module);
void bind_dequant_probe(pybind11::module_& module);
void bind_expert_probe(pybind11::module_& module);
void bind_device_probe(pybind11::module_ module);
void bind_megakernel(pybind11::module_& module);
void bind_baseline(pybind11::module_& module);
void bind_peer_clock(pybind11::module_& module);

namespace {

int device_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void set_device(int device) { check(cudaSetDevice(device), "choosing a GPU"); }

}  // namespace
}  // namespace musetrace::bindings

PYBIND11_MODULE(_cuda, module) {
    using namespace musetrace::bindings;
    module.doc() = "musetrace CUDA part: probes of the stamps, their clock, and packed weights";
    module.def("device_count", &device_count, "CUDA devices that can be used; 0 without a driver");
    module.def("set_device", &set_device, pybind11::arg("device"), "The GPU of this thread's calls from now on");
    bind_stamp_probe(module);
    bind_dequant_probe(module);
    bind_expert_probe(module);
    bind_device_probe(module.def_submodule("probe", "what `musetrace probe` measures"));
    bind_megakernel(module);
    bind_baseline(module);
    bind_peer_clock(module);
}
