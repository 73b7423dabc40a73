// The compiled module that is always there: the ABI and the CPU device. One bind function per area.
#include <pybind11/pybind11.h>

namespace musetrace::bindings {
void bind_abi(pybind11::module_ module);
void bind_analysis_critical(pybind11::module_ module);
void bind_analysis_instances(pybind11::module_ module);
void bind_analysis_lanes(pybind11::module_ module);
void bind_analysis_producers(pybind11::module_ module);
void bind_analysis_spans(pybind11::module_ module);
void bind_analysis_sums(pybind11::module_ module);
void bind_cpu(pybind11::module_ module);
void bind_geometry(pybind11::module_ module);
void bind_host_probe(pybind11::module_ module);
}  // namespace musetrace::bindings

PYBIND11_MODULE(_core, module) {
    module.doc() = "musetrace native core: stamp ABI and CPU device";
    musetrace::bindings::bind_abi(module.def_submodule("abi", "stamp layout, job tables, wait report, frame"));
    pybind11::module_ analysis = module.def_submodule("analysis", "the loops of musetrace.analysis that are long");
    musetrace::bindings::bind_analysis_critical(analysis);
    musetrace::bindings::bind_analysis_instances(analysis);
    musetrace::bindings::bind_analysis_lanes(analysis);
    musetrace::bindings::bind_analysis_producers(analysis);
    musetrace::bindings::bind_analysis_spans(analysis);
    musetrace::bindings::bind_analysis_sums(analysis);
    musetrace::bindings::bind_cpu(module.def_submodule("cpu", "the host device that runs the megakernel"));
    musetrace::bindings::bind_geometry(
        module.def_submodule("megakernel", "how the GPU kernel deals a layer to its blocks"));
    musetrace::bindings::bind_host_probe(module.def_submodule("probe", "what `musetrace probe --device cpu` measures"));
}
