// The GPU device for Python. Weights are device addresses that Python keeps alive; activations, KV cache and exchange
// belong to the device.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <map>
#include <string>

#include "bindings/cuda_memory.h"
#include "bindings/launch_failed.h"
#include "bindings/layer_weights.h"
#include "bindings/shape_dict.h"
#include "bindings/step_dict.h"
#include "bindings/stop4_name.h"
#include "megakernel/muse_device.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using megakernel::LayerBuild;
using megakernel::MuseDevice;
using megakernel::PeerHandles;

template <class T>
using Array = py::array_t<T, py::array::c_style>;
using RequestTuple = std::tuple<std::string, std::uint32_t, std::uint64_t, std::uint32_t>;

std::uintptr_t address(const py::dict& addresses, const char* name) {
    if (!addresses.contains(name)) throw std::invalid_argument(std::string(name) + " is missing");
    return addresses[name].cast<std::uintptr_t>();
}

LayerBuild build_of(const std::string& name) {
    static const std::map<std::string, LayerBuild> builds{{"off", LayerBuild::kOff},
                                                          {"store", LayerBuild::kStore},
                                                          {"register", LayerBuild::kRegister},
                                                          {"delays", LayerBuild::kDelays},
                                                          {"absent", LayerBuild::kAbsent}};
    const auto found = builds.find(name);
    if (found == builds.end()) throw std::invalid_argument("no build is called " + name);
    return found->second;
}

megakernel::LaunchRequest request_of(const RequestTuple& request) {
    static const std::map<std::string, megakernel::Launched> kinds{
        {"entry", megakernel::Launched::kEntry},
        {"layer", megakernel::Launched::kLayer},
        {"head", megakernel::Launched::kHead},
        {"draft_context", megakernel::Launched::kDraftContext},
        {"draft_layer", megakernel::Launched::kDraftLayer},
        {"draft_head", megakernel::Launched::kDraftHead},
        {"draft_tree", megakernel::Launched::kDraftTree},
        {"embed", megakernel::Launched::kEmbed},
        {"accept", megakernel::Launched::kAccept},
        {"keep_kv", megakernel::Launched::kKeep}};
    const auto& [kind, layer, stamps, epoch] = request;
    const auto found = kinds.find(kind);
    if (found == kinds.end()) throw std::invalid_argument("no launch is called " + kind);
    return {found->second, layer, reinterpret_cast<char*>(stamps), epoch};
}

class PyMuseDevice {
  public:
    PyMuseDevice(const py::dict& shape, const std::string& stop4, bool loopback, bool programmatic,
                 std::uint64_t budget_ns, std::uint32_t in_flight_bytes, std::uint32_t first_rank, std::uint32_t held)
        : device_(shape_from(shape),
                  {stop4_of(stop4), loopback, programmatic, budget_ns, in_flight_bytes, first_rank, held}) {}

    void set_layer(std::uint32_t rank, std::uint32_t layer, const py::dict& a, bool global_attention,
                   bool bf16_experts) {
        const auto at = [&](const char* name) { return address(a, name); };
        device_.set_layer(rank, layer, layer_weights(at), own_projection(at), global_attention, bf16_experts);
    }

    void set_head(std::uint32_t rank, const py::dict& a) {
        device_.set_head(rank, reinterpret_cast<const char*>(address(a, "lm_head")),
                         reinterpret_cast<const float*>(address(a, "final_norm")));
    }
    void set_rope(std::uint64_t table) { device_.set_rope(reinterpret_cast<const float*>(table)); }
    void set_state(std::uint32_t position, std::uint32_t epoch) { device_.set_state(position, epoch); }

    void add_draft(const py::object& shape, std::uint32_t in_flight_bytes) {
        device_.add_draft(draft_from(shape), in_flight_bytes);
    }
    void set_draft_layer(std::uint32_t rank, std::uint32_t layer, const py::dict& a) {
        device_.draft().set_layer(rank, layer, draft_layer_weights([&](const char* name) { return address(a, name); }));
    }
    void set_draft(std::uint32_t rank, const py::dict& a) {
        device_.draft().set_outer(rank, draft_outer_weights([&](const char* name) { return address(a, name); }));
    }
    void set_draft_rope(std::uint64_t table) { device_.draft().set_rope(reinterpret_cast<const float*>(table)); }
    void set_epoch(std::uint32_t epoch) { device_.set_epoch(epoch); }
    void set_step(const py::dict& step) {
        const Shape& s = device_.shape();
        device_.set_step(changed_step(device_.step(), step, s.vocab * s.ranks, megakernel::kMaxTopK));
    }
    py::dict step() { return step_dict(device_.step()); }

    std::vector<py::bytes> handles() {
        std::vector<py::bytes> all;
        for (const PeerHandles& of_rank : device_.handles()) {
            all.emplace_back(reinterpret_cast<const char*>(of_rank.data()), of_rank.size() * sizeof of_rank[0]);
        }
        return all;
    }
    void connect(const std::vector<std::string>& all) {
        const std::size_t count = device_.handles_of_rank(), bytes = count * sizeof(cudaIpcMemHandle_t);
        std::vector<PeerHandles> handles(all.size(), PeerHandles(count));
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            if (all[rank].size() != bytes) {
                throw std::invalid_argument("the handles of rank " + std::to_string(rank) + " have " +
                                            std::to_string(all[rank].size()) + " bytes, not " + std::to_string(bytes));
            }
            std::memcpy(handles[rank].data(), all[rank].data(), bytes);
        }
        device_.connect(handles);
    }
    void connect_here(const std::vector<PyMuseDevice*>& others) {
        std::vector<MuseDevice*> devices;
        for (PyMuseDevice* other : others) devices.push_back(&other->device_);
        device_.connect_here(devices);
    }
    void disconnect() { device_.disconnect(); }
    void withdraw_handles() { device_.withdraw_handles(); }
    void reset() { device_.reset(); }

    void launch(const RequestTuple& request, const std::string& build) {
        device_.launch(request_of(request), build_of(build));
    }
    std::size_t capture(const std::vector<RequestTuple>& requests, const std::string& build) {
        std::vector<megakernel::LaunchRequest> all;
        for (const RequestTuple& request : requests) all.push_back(request_of(request));
        return device_.capture(all, build_of(build));
    }
    void replay(std::size_t graph) { device_.replay(graph); }
    void synchronize() {
        const py::gil_scoped_release unlocked;
        device_.synchronize();
    }

    // Of the draft: `layer` counts its layers, or the target's that it takes.
    py::array draft_values(const std::string& name, std::uint32_t rank, std::uint32_t layer) {
        device_.synchronize();
        megakernel::draft::DraftDevice& draft = device_.draft();
        const megakernel::draft::DraftSizes& s = draft.shape();
        constexpr std::size_t kDim = megakernel::draft::kHeadDim;
        if (name == "residual") return copy<float>(draft.residual(rank), {kTokens, s.hidden});
        if (name == "features") return copy<float>(draft.features(rank, layer), {kTokens, s.hidden});
        if (name == "q") return copy<std::uint16_t>(draft.q(rank), {kTokens, s.head_columns()});
        if (name == "k") return copy<std::uint16_t>(draft.cache(rank, layer).k, {s.kv_heads, s.capacity, kDim});
        if (name == "v") return copy<std::uint16_t>(draft.cache(rank, layer).v, {s.kv_heads, kDim, s.capacity});
        if (name == "context") return copy<char>(draft.context(rank), {std::size_t{kTokens} * s.hidden * 2});
        if (name == "normed") return copy<char>(draft.normed(rank), {std::size_t{kTokens} * s.hidden * 2});
        throw std::invalid_argument("no values of a draft are called " + name);
    }
    void set_draft_values(const std::string& name, std::uint32_t rank, std::uint32_t layer, const py::array& values) {
        device_.synchronize();
        megakernel::draft::DraftDevice& draft = device_.draft();
        const megakernel::draft::DraftSizes& s = draft.shape();
        constexpr std::size_t kDim = megakernel::draft::kHeadDim;
        if (name == "residual") return put<float>(draft.residual(rank), values, {kTokens, s.hidden});
        if (name == "features") return put<float>(draft.features(rank, layer), values, {kTokens, s.hidden});
        if (name == "q") return put<std::uint16_t>(draft.q(rank), values, {kTokens, s.head_columns()});
        if (name == "k") return put<std::uint16_t>(draft.cache(rank, layer).k, values, {s.kv_heads, s.capacity, kDim});
        if (name == "v") return put<std::uint16_t>(draft.cache(rank, layer).v, values, {s.kv_heads, kDim, s.capacity});
        throw std::invalid_argument("no values of a draft are called " + name);
    }
    py::dict draft_fit(const std::string& build) { return fit_dict(device_.draft().fit(build_of(build))); }

    py::array values(const std::string& name, std::uint32_t rank, std::uint32_t layer) {
        device_.synchronize();
        const Shape& s = device_.shape();
        if (name == "residual") return copy<float>(device_.residual(rank), {kTokens, s.hidden});
        if (name == "q") return copy<std::uint16_t>(device_.q(rank), {kTokens, s.head_columns()});
        if (name == "gate") return copy<std::uint16_t>(device_.gate(rank), {kTokens, s.head_columns()});
        if (name == "k") return copy<std::uint16_t>(device_.k(rank, layer), {s.kv_heads, s.capacity, s.head_dim});
        if (name == "v") return copy<std::uint16_t>(device_.v(rank, layer), {s.kv_heads, s.head_dim, s.capacity});
        if (name == "logits") return copy<float>(device_.logits(rank), {kTokens, s.vocab});
        if (name == "exchange") return copy<char>(device_.last_exchange(rank), {device_.exchange_layout().bytes});
        throw std::invalid_argument("no values are called " + name);
    }

    void set_values(const std::string& name, std::uint32_t rank, std::uint32_t layer, const py::array& values) {
        device_.synchronize();
        const Shape& s = device_.shape();
        if (name == "residual") return put<float>(device_.new_residual(rank), values, {kTokens, s.hidden});
        if (name == "logits") return put<float>(device_.logits(rank), values, {kTokens, s.vocab});
        if (name == "q") return put<std::uint16_t>(device_.q(rank), values, {kTokens, s.head_columns()});
        if (name == "gate") return put<std::uint16_t>(device_.gate(rank), values, {kTokens, s.head_columns()});
        if (name == "k")
            return put<std::uint16_t>(device_.k(rank, layer), values, {s.kv_heads, s.capacity, s.head_dim});
        if (name == "v")
            return put<std::uint16_t>(device_.v(rank, layer), values, {s.kv_heads, s.head_dim, s.capacity});
        throw std::invalid_argument("no values are called " + name);
    }

    void poison() { device_.poison(); }
    void set_delay_seed(std::uint32_t seed) { device_.set_delay_seed(seed); }
    void set_lost_block(std::uint32_t block) { device_.set_lost_block(block); }
    void set_stamp_rows(std::uint32_t slots, std::uint32_t target, std::uint32_t draft, std::uint32_t step) {
        device_.set_stamp_rows({{slots, target}, {slots, draft}, {slots, step}});
    }
    std::uint64_t stream() const { return reinterpret_cast<std::uint64_t>(device_.stream()); }
    std::uint32_t ranks() const { return device_.ranks(); }

    py::dict fit(const std::string& build) const { return fit_dict(device_.fit(build_of(build))); }

  private:
    static py::dict fit_dict(const megakernel::KernelFit& fit) {
        py::dict values;
        values["blocks"] = fit.blocks;
        values["registers"] = fit.registers;
        values["local_bytes"] = fit.local_bytes;
        values["shared_bytes"] = fit.shared_bytes;
        return values;
    }
    template <class T>
    static py::array copy(const T* from, const std::vector<std::size_t>& shape) {
        Array<T> out(shape);
        check(cudaMemcpy(out.mutable_data(), from, static_cast<std::size_t>(out.nbytes()), cudaMemcpyDeviceToHost),
              "copying from the device");
        return out;
    }
    template <class T>
    static void put(T* to, const py::array& values, const std::vector<std::size_t>& shape) {
        if (!py::isinstance<Array<T>>(values)) throw std::invalid_argument("values have the wrong type or order");
        std::size_t bytes = sizeof(T);
        for (const std::size_t size : shape) bytes *= size;
        const std::vector<std::size_t> got(values.shape(), values.shape() + values.ndim());
        if (got != shape) throw std::invalid_argument("values have the wrong shape");
        write_bytes(to, values.data(), bytes, "copying to the device");
    }

    MuseDevice device_;
};

}  // namespace

void bind_megakernel(py::module_& module) {
    bind_launch_failed<megakernel::WaitTimedOut>(module);
    py::class_<PyMuseDevice>(module, "MuseDevice", "Ranks of a model that one GPU holds, a layer a launch")
        .def(py::init<const py::dict&, const std::string&, bool, bool, std::uint64_t, std::uint32_t, std::uint32_t,
                      std::uint32_t>(),
             py::arg("shape"), py::arg("stop4") = "sumsq", py::arg("loopback") = false, py::arg("programmatic") = true,
             py::arg("budget_ns") = 100'000'000ull, py::arg("in_flight_bytes") = 18432, py::arg("first_rank") = 0,
             py::arg("held") = 0, "held: ranks from first_rank on; 0: all")
        .def("set_layer", &PyMuseDevice::set_layer, py::arg("rank"), py::arg("layer"), py::arg("addresses"),
             py::arg("global_attention"), py::arg("bf16_experts"))
        .def("set_head", &PyMuseDevice::set_head, py::arg("rank"), py::arg("addresses"))
        .def("set_rope", &PyMuseDevice::set_rope, py::arg("address"), "float32[capacity, 32, 2]: cosine, sine")
        .def("set_state", &PyMuseDevice::set_state, py::arg("position"), py::arg("epoch") = 0)
        .def("add_draft", &PyMuseDevice::add_draft, py::arg("draft"), py::arg("in_flight_bytes") = 32768,
             "A draft of these sizes beside the model; then its launches can be asked for")
        .def("set_draft_layer", &PyMuseDevice::set_draft_layer, py::arg("rank"), py::arg("layer"), py::arg("addresses"))
        .def("set_draft", &PyMuseDevice::set_draft, py::arg("rank"), py::arg("addresses"),
             "fc, context_norm, norm, embedding")
        .def("set_draft_rope", &PyMuseDevice::set_draft_rope, py::arg("address"), "float32[capacity, 64, 2]")
        .def("set_epoch", &PyMuseDevice::set_epoch, py::arg("epoch"))
        .def("set_step", &PyMuseDevice::set_step, py::arg("step"),
             "What a step starts from, as _core.cpu.Device has it; what is not named stays as it was")
        .def("step", &PyMuseDevice::step, "The state that the last launch left")
        .def("draft_values", &PyMuseDevice::draft_values, py::arg("name"), py::arg("rank") = 0, py::arg("layer") = 0,
             "residual, features, q, k, v (transposed); context or normed as chunks of columns")
        .def("set_draft_values", &PyMuseDevice::set_draft_values, py::arg("name"), py::arg("rank"), py::arg("layer"),
             py::arg("values"))
        .def("draft_fit", &PyMuseDevice::draft_fit, py::arg("build"))
        .def("handles", &PyMuseDevice::handles, "Of what others write to, of each held rank: bytes for other processes")
        .def("connect", &PyMuseDevice::connect, py::arg("handles"), "Maps the ranks of other processes; [rank]")
        .def("connect_here", &PyMuseDevice::connect_here, py::arg("others"),
             "Instead, with the other ranks on devices of this process, none of which launches programmatically")
        .def("disconnect", &PyMuseDevice::disconnect, "The mappings end; no process may have a launch left")
        .def("withdraw_handles", &PyMuseDevice::withdraw_handles, "All have disconnected: the memory may be freed")
        .def("reset", &PyMuseDevice::reset, "Behind a failed launch with ranks in other processes, while none runs one")
        .def("launch", &PyMuseDevice::launch, py::arg("request"), py::arg("build"),
             "request: (entry, layer, head, draft_context, draft_layer, draft_head, draft_tree, embed, accept or "
             "keep_kv; layer; device address of the stamps or 0; epoch)")
        .def("capture", &PyMuseDevice::capture, py::arg("requests"), py::arg("build"), "A graph; returns its number")
        .def("replay", &PyMuseDevice::replay, py::arg("graph"))
        .def("synchronize", &PyMuseDevice::synchronize,
             "Until all launches have ended. Raises LaunchFailed(report) when a wait in one ran out of time")
        .def("values", &PyMuseDevice::values, py::arg("name"), py::arg("rank") = 0, py::arg("layer") = 0,
             "residual, q, gate, k, v (transposed), logits or exchange, as the next launch would read them")
        .def("set_values", &PyMuseDevice::set_values, py::arg("name"), py::arg("rank"), py::arg("layer"),
             py::arg("values"))
        .def("poison", &PyMuseDevice::poison, "Exchange empty, all outputs of the next launch filled with 0xA5")
        .def("set_delay_seed", &PyMuseDevice::set_delay_seed, py::arg("seed"))
        .def("set_lost_block", &PyMuseDevice::set_lost_block, py::arg("block"))
        .def("set_stamp_rows", &PyMuseDevice::set_stamp_rows, py::arg("slots"), py::arg("target"), py::arg("draft"),
             py::arg("step"), "Slots of a block in a region of any launch, and the first of those of each job table")
        .def("fit", &PyMuseDevice::fit, py::arg("build"))
        .def_property_readonly("stream", &PyMuseDevice::stream)
        .def_property_readonly("ranks", &PyMuseDevice::ranks);
}

}  // namespace musetrace::bindings
