// The measurements of `musetrace probe`, as arrays of raw samples.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/cuda_memory.h"
#include "probe/device_probe.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

template <class T>
py::array_t<T> array_of(const probe::Samples<T>& samples) {
    py::array_t<T> out(samples.shape);
    if (static_cast<std::size_t>(out.size()) != samples.values.size()) {
        throw std::logic_error("a probe gave " + std::to_string(samples.values.size()) + " samples, not " +
                               std::to_string(out.size()));
    }
    std::copy(samples.values.begin(), samples.values.end(), out.mutable_data());
    return out;
}

py::tuple arrays_of(const probe::Cycles& measured) {
    return py::make_tuple(array_of(measured.cycles), array_of(measured.clocks));
}

// What a measurement gives; others may run Python meanwhile.
template <class Measure>
auto measured(Measure measure) {
    const py::gil_scoped_release release;
    return measure();
}

template <class Names>
py::tuple names_of(const Names& names) {
    py::list list;
    for (const char* name : names) list.append(name);
    return py::tuple(list);
}

template <class Names>
std::uint32_t index_of(const Names& names, const std::string& name, const char* what) {
    const auto found = std::find(std::begin(names), std::end(names), name);
    if (found == std::end(names)) throw std::invalid_argument(std::string("no ") + what + " is called '" + name + "'");
    return static_cast<std::uint32_t>(found - std::begin(names));
}

constexpr const char* kBoundaries[] = {"plain", "programmatic", "early_trigger"};
constexpr const char* kL2States[] = {"cold", "prefetched", "loaded"};

py::dict device_facts() {
    int device = 0, driver = 0, runtime = 0;
    check(cudaGetDevice(&device), "asking for the GPU");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "asking for the GPU's properties");
    check(cudaDriverGetVersion(&driver), "asking for the driver's version");
    check(cudaRuntimeGetVersion(&runtime), "asking for CUDA's version");
    const auto dotted = [](int version) {
        return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    };
    py::dict facts;
    facts["name"] = std::string(properties.name);
    facts["compute_capability"] = py::make_tuple(properties.major, properties.minor);
    facts["sms"] = properties.multiProcessorCount;
    facts["l2_bytes"] = properties.l2CacheSize;
    facts["shared_bytes_per_block"] = properties.sharedMemPerBlockOptin;
    facts["memory_bytes"] = properties.totalGlobalMem;
    facts["cuda_of_driver"] = dotted(driver);
    facts["cuda"] = dotted(runtime);
    return facts;
}

std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    return free;
}

// The first GPU beside the current one whose memory it reaches, and which reaches its own; -1: none.
int peer_device() {
    int device = 0, count = 0;
    check(cudaGetDevice(&device), "asking for the GPU");
    check(cudaGetDeviceCount(&count), "counting GPUs");
    for (int other = 0; other < count; ++other) {
        int there = 0, back = 0;
        if (other == device) continue;
        check(cudaDeviceCanAccessPeer(&there, device, other), "asking whether GPUs reach each other's memory");
        check(cudaDeviceCanAccessPeer(&back, other, device), "asking whether GPUs reach each other's memory");
        if (there != 0 && back != 0) return other;
    }
    return -1;
}

py::tuple delays(bool tensor_load, const std::vector<std::uint32_t>& delays_ns, const std::vector<std::uint32_t>& turns,
                 std::uint32_t repeats, std::uint32_t calibration) {
    const probe::Delays all =
        measured([&] { return probe::measure_delays(tensor_load, delays_ns, turns, repeats, calibration); });
    return py::make_tuple(array_of(all.stamps), array_of(all.loops_ns), array_of(all.anchors));
}

void bind_clocks(py::module_& module) {
    module.def(
        "clock_read_cycles",
        [](bool globaltimer, std::uint32_t samples) {
            return array_of(measured([&] { return probe::measure_clock_reads(globaltimer, samples); }));
        },
        py::arg("globaltimer"), py::arg("samples"), "uint64[samples]: cycles of 32 reads in a row");
    module.def(
        "unix_brackets",
        [](std::uint32_t rounds) { return array_of(measured([&] { return probe::measure_unix_brackets(rounds); })); },
        py::arg("rounds"), "uint64[rounds, 3] ns: CLOCK_REALTIME, then %globaltimer, then CLOCK_REALTIME");
    module.def(
        "clock_pairs",
        [](bool tensor_load, std::uint32_t count, std::uint32_t interval_ns) {
            return array_of(measured([&] { return probe::measure_clock_pairs(tensor_load, count, interval_ns); }));
        },
        py::arg("tensor_load"), py::arg("count"), py::arg("interval_ns"),
        "uint64[blocks, count, 2]: ns of %globaltimer and cycles of every SM, at steps of %globaltimer");
    module.def("known_delays", &delays, py::arg("tensor_load"), py::arg("delays_ns"), py::arg("turns"),
               py::arg("repeats"), py::arg("calibration"),
               "(stamps uint64[blocks, 2, delays, repeats, 5], loops uint64[blocks, 2, delays], anchors uint64[blocks, "
               "2, 2]); see csrc/probe/device_probe.h");
}

void bind_stamps_and_memory(py::module_& module) {
    module.attr("STAMP_CASES") = names_of(probe::kStampCases);
    module.attr("STAMPS_PER_BLOCK") = probe::kStampsPerBlock;
    module.def(
        "stamp_costs",
        [](std::uint32_t launches, std::uint32_t rounds, bool programmatic, bool writes_output) {
            return array_of(
                measured([&] { return probe::measure_stamp_costs(launches, rounds, programmatic, writes_output); }));
        },
        py::arg("launches"), py::arg("rounds"), py::arg("programmatic"), py::arg("writes_output"),
        "float32[STAMP_CASES, 2 rounds]: microseconds of a launch, cases by turns forward and backward");
    module.def(
        "stream_times",
        [](const std::vector<std::uint32_t>& in_flight, std::size_t bytes, std::uint32_t rounds) {
            return array_of(measured([&] { return probe::measure_streams(in_flight, bytes, rounds); }));
        },
        py::arg("in_flight"), py::arg("bytes"), py::arg("rounds"),
        "float32[in_flight, 2 rounds]: microseconds of reading so many bytes once, with so many pieces of 16 KiB on "
        "their way to each SM");
    module.def(
        "l2_times",
        [](const std::string& state, std::size_t bytes, std::uint32_t launches) {
            const auto which = static_cast<probe::L2State>(index_of(kL2States, state, "state of L2"));
            return array_of(measured([&] { return probe::measure_l2(which, bytes, launches); }));
        },
        py::arg("state"), py::arg("bytes"), py::arg("launches"),
        "uint64[launches, blocks, 2] ns: the common begin and each block's end of reading `bytes` that are cold, "
        "prefetched or loaded");
}

void bind_waits(py::module_& module) {
    module.attr("MEMORY_OPERATIONS") = names_of(probe::kMemoryOperations);
    module.def(
        "hop_cycles",
        [](bool lamport, std::uint32_t in_flight, std::uint32_t pairs, std::uint32_t rounds) {
            return arrays_of(measured([&] { return probe::measure_hops(lamport, in_flight, pairs, rounds); }));
        },
        py::arg("lamport"), py::arg("in_flight"), py::arg("pairs"), py::arg("rounds"),
        "(cycles uint64[pairs, rounds] of round trips between SMs, clocks uint64[pairs, 2, 2])");
    module.def(
        "operation_cycles",
        [](const std::string& operation, std::uint32_t in_flight, std::uint32_t samples) {
            const std::uint32_t which = index_of(probe::kMemoryOperations, operation, "operation");
            return arrays_of(measured([&] { return probe::measure_operations(which, in_flight, samples); }));
        },
        py::arg("operation"), py::arg("in_flight"), py::arg("samples"),
        "(cycles uint64[blocks, samples] of one of MEMORY_OPERATIONS, clocks uint64[blocks, 2, 2])");
    module.def(
        "barrier_cycles",
        [](std::uint32_t rounds) { return arrays_of(measured([&] { return probe::measure_barriers(rounds); })); },
        py::arg("rounds"), "(cycles uint64[blocks, rounds] of a barrier over all SMs, clocks uint64[blocks, 2, 2])");
    module.def("peer_device", &peer_device, "another GPU with access to this one's memory and back; -1: none");
    module.def(
        "peer_hop_cycles",
        [](int first, int second, std::uint32_t rounds) {
            return arrays_of(measured([&] { return probe::measure_peer_hops(first, second, rounds); }));
        },
        py::arg("first"), py::arg("second"), py::arg("rounds"),
        "(cycles uint64[rounds] of round trips between GPUs, clocks uint64[2, 2])");
}

void bind_launches(py::module_& module) {
    py::list bodies;
    for (const auto& [first, second] : probe::kBodies) bodies.append(py::make_tuple(first, second));
    module.attr("BODIES_KIB") = py::tuple(bodies);
    module.def(
        "boundary_times",
        [](const std::string& boundary, std::uint32_t shared_bytes, std::uint32_t launches, std::uint32_t replays) {
            const auto which = static_cast<probe::Boundary>(index_of(kBoundaries, boundary, "boundary"));
            return array_of(
                measured([&] { return probe::measure_boundaries(which, shared_bytes, launches, replays); }));
        },
        py::arg("boundary"), py::arg("shared_bytes"), py::arg("launches"), py::arg("replays"),
        "uint64[replays, launches, blocks, 3] ns: begin, past the wait for the launch before, end; plain, programmatic "
        "or early_trigger");
    module.def(
        "empty_launch_times",
        [](std::uint32_t launches, std::uint32_t rounds) {
            return array_of(measured([&] { return probe::measure_empty_launches(launches, rounds); }));
        },
        py::arg("launches"), py::arg("rounds"),
        "float32[2, 2 rounds]: microseconds of an empty launch in a graph, plain and programmatic");
    module.def(
        "body_cycles",
        [](std::uint32_t body, std::uint32_t warps, std::uint32_t passes, std::uint32_t launches) {
            return arrays_of(measured([&] { return probe::measure_bodies(body, warps, passes, launches); }));
        },
        py::arg("body"), py::arg("warps"), py::arg("passes"), py::arg("launches"),
        "(cycles uint64[launches, blocks, passes, 2] of the two bodies of BODIES_KIB[body], clocks uint64[launches, "
        "blocks, 2, 2])");
    module.def(
        "clusters_that_fit",
        [](const std::vector<std::uint32_t>& sizes) {
            return measured([&] { return probe::measure_clusters(sizes); });
        },
        py::arg("sizes"), "how many clusters of each size run at once: 384 threads, 160 KiB of shared memory a block");
}

}  // namespace

// A submodule of its own: other callers of the compiled module need none of this.
void bind_device_probe(py::module_ module) {
    module.def("device_facts", &device_facts, "what CUDA says of the current GPU; sizes in bytes");
    module.def("free_bytes", &free_bytes, "free memory of the current GPU");
    bind_clocks(module);
    bind_stamps_and_memory(module);
    bind_waits(module);
    bind_launches(module);
}

}  // namespace musetrace::bindings
