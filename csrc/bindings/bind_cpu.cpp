// The host device for Python. Arrays are checked for type and shape here; the device keeps pointers into them, and
// this class keeps the arrays.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>

#include "bindings/launch_failed.h"
#include "bindings/shape_dict.h"
#include "bindings/step_dict.h"
#include "cpu/device.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using cpu::Format;
using cpu::Matrix;
using musetrace::Shape;

template <class T>
using Array = py::array_t<T, py::array::c_style>;

class PyDevice {
  public:
    PyDevice(const py::dict& shape, std::uint32_t stages, std::uint32_t stage_bytes, std::uint64_t budget_ns,
             const py::object& draft)
        : device_(shape_from(shape), {stages, stage_bytes, budget_ns}, draft_from(draft)) {}

    void set_layer(std::uint32_t rank, std::uint32_t layer, const py::dict& arrays, bool global_attention) {
        const Shape& s = device_.shape();
        cpu::LayerWeights w;
        w.qkvg = bf16(arrays, "qkvg", s.qkv_units() * s.head_dim, s.hidden);
        w.o = bf16(arrays, "o", s.hidden, s.head_columns());
        w.pooler = bf16(arrays, "pooler", s.pooled_rows(), s.hidden);
        w.router = {Format::kFloat32, s.router_rows(), s.hidden,
                    bytes<float>(arrays, "router", {s.router_rows(), s.hidden}), nullptr};
        w.unpooler = bf16(arrays, "unpooler", s.hidden, s.pooled_rows());
        w.gate_up = experts(arrays, "gate_up", 2 * s.features(), s.moe_hidden);
        w.down = experts(arrays, "down", s.pooled_rows(), s.intermediate);
        w.router_bias = vector(arrays, "router_bias", s.experts);
        w.input_norm = vector(arrays, "input_norm", s.hidden);
        w.pre_ffn_norm = vector(arrays, "pre_ffn_norm", s.hidden);
        w.post_ffn_norm = vector(arrays, "post_ffn_norm", s.hidden);
        w.pre_expert_norm = vector(arrays, "pre_expert_norm", s.moe_hidden);
        w.post_expert_norm = vector(arrays, "post_expert_norm", s.moe_hidden);
        w.attn_alpha = vector(arrays, "attn_alpha", s.hidden);
        w.attn_beta = vector(arrays, "attn_beta", s.hidden);
        w.ffn_alpha = vector(arrays, "ffn_alpha", s.hidden);
        w.ffn_beta = vector(arrays, "ffn_beta", s.hidden);
        w.global_attention = global_attention;
        wait_idle();
        device_.rank(rank).layers.at(layer) = w;
    }

    void set_head(std::uint32_t rank, const py::dict& arrays) {
        const Shape& s = device_.shape();
        wait_idle();
        device_.rank(rank).head = {vector(arrays, "final_norm", s.hidden), bf16(arrays, "lm_head", s.vocab, s.hidden),
                                   bf16(arrays, "embed", s.vocab * s.ranks, s.hidden)};
    }

    void set_draft(std::uint32_t rank, const py::dict& arrays, const py::list& layers) {
        const std::uint32_t hidden = device_.shape().hidden;
        const DraftShape& d = device_.draft();
        cpu::DraftWeights w;
        w.fc = bf16(arrays, "fc", hidden, d.feature_width(hidden) / device_.shape().ranks);
        w.context_norm = vector(arrays, "context_norm", hidden);
        w.norm = vector(arrays, "norm", hidden);
        for (const py::handle layer : layers) w.layers.push_back(draft_layer(py::cast<py::dict>(layer)));
        if (w.layers.size() != d.layers) throw std::invalid_argument("the draft has another number of layers");
        wait_idle();
        device_.rank(rank).draft = w;
    }

    // Of every rank: what a step starts from.
    void set_step(const py::dict& step) {
        wait_idle();
        const Shape& s = device_.shape();
        const cpu::StepState state = changed_step(device_.rank(0).state, step, s.vocab * s.ranks, cpu::kMaxTopK);
        for (std::uint32_t rank = 0; rank < s.ranks; ++rank) device_.rank(rank).state = state;
    }

    py::dict step(std::uint32_t rank) {
        wait_idle();
        return step_dict(device_.rank(rank).state);
    }

    Array<std::uint16_t> features(std::uint32_t rank) {
        wait_idle();
        return copy_of(device_.rank(rank).features, {kTokens, device_.draft().feature_width(device_.shape().hidden)});
    }

    void set_features(std::uint32_t rank, const Array<std::uint16_t>& features) {
        check(features, "features", {kTokens, device_.draft().feature_width(device_.shape().hidden)});
        wait_idle();
        std::copy(features.data(), features.data() + features.size(), device_.rank(rank).features.begin());
    }

    py::tuple draft_kv(std::uint32_t rank, std::uint32_t layer) {
        wait_idle();
        const DraftShape& d = device_.draft();
        const std::vector<py::ssize_t> shape{d.kv_heads, device_.shape().capacity, d.head_dim};
        const cpu::KvLayer& cache = device_.rank(rank).draft_kv.at(layer);
        return py::make_tuple(copy_of(cache.k, shape), copy_of(cache.v, shape));
    }

    void set_draft_kv(std::uint32_t rank, std::uint32_t layer, const Array<std::uint16_t>& k,
                      const Array<std::uint16_t>& v) {
        const DraftShape& d = device_.draft();
        const std::vector<py::ssize_t> shape{d.kv_heads, device_.shape().capacity, d.head_dim};
        check(k, "k", shape);
        check(v, "v", shape);
        wait_idle();
        cpu::KvLayer& cache = device_.rank(rank).draft_kv.at(layer);
        std::copy(k.data(), k.data() + k.size(), cache.k.begin());
        std::copy(v.data(), v.data() + v.size(), cache.v.begin());
    }

    Array<std::uint16_t> draft_q(std::uint32_t rank) {
        wait_idle();
        return copy_of(device_.activations(rank).draft_q, {kTokens, device_.draft().head_columns()});
    }

    void set_draft_q(std::uint32_t rank, const Array<std::uint16_t>& q) {
        check(q, "q", {kTokens, device_.draft().head_columns()});
        wait_idle();
        std::copy(q.data(), q.data() + q.size(), device_.activations(rank).draft_q.begin());
    }

    void set_residual(const Array<float>& residual) {
        const Shape& s = device_.shape();
        check(residual, "residual", {kTokens, s.hidden});
        device_.set_residual(residual.data());
    }

    Array<float> residual(std::uint32_t rank) {
        wait_idle();
        return copy_of(device_.activations(rank).residual, {kTokens, device_.shape().hidden});
    }

    Array<float> logits(std::uint32_t rank) {
        wait_idle();
        return copy_of(device_.rank(rank).logits, {kTokens, device_.shape().vocab});
    }

    py::tuple projection(std::uint32_t rank) {
        wait_idle();
        const cpu::Activations& a = device_.activations(rank);
        return py::make_tuple(copy_of(a.q, {kTokens, device_.shape().head_columns()}),
                              copy_of(a.gate, {kTokens, device_.shape().head_columns()}));
    }

    void set_projection(std::uint32_t rank, const Array<std::uint16_t>& q, const Array<std::uint16_t>& gate) {
        const Shape& s = device_.shape();
        check(q, "q", {kTokens, s.head_columns()});
        check(gate, "gate", {kTokens, s.head_columns()});
        wait_idle();
        cpu::Activations& a = device_.activations(rank);
        std::copy(q.data(), q.data() + q.size(), a.q.begin());
        std::copy(gate.data(), gate.data() + gate.size(), a.gate.begin());
    }

    py::tuple kv(std::uint32_t rank, std::uint32_t layer) {
        wait_idle();
        const cpu::KvLayer& cache = device_.rank(rank).kv.at(layer);
        return py::make_tuple(copy_of(cache.k, kv_shape()), copy_of(cache.v, kv_shape()));
    }

    void set_kv(std::uint32_t rank, std::uint32_t layer, const Array<std::uint16_t>& k, const Array<std::uint16_t>& v) {
        check(k, "k", kv_shape());
        check(v, "v", kv_shape());
        wait_idle();
        cpu::KvLayer& cache = device_.rank(rank).kv.at(layer);
        std::copy(k.data(), k.data() + k.size(), cache.k.begin());
        std::copy(v.data(), v.data() + v.size(), cache.v.begin());
    }

    std::uint64_t launch(const std::string& kind, std::uint32_t layer, std::uint32_t position,
                         const std::string& stamps, std::uint64_t address, std::uint32_t epoch) {
        return device_.launch(
            {kinds().at(kind), layer, position, modes().at(stamps), reinterpret_cast<char*>(address), epoch});
    }

    void set_delay(std::uint32_t rank, std::uint32_t job, std::uint64_t delay_ns) {
        const py::gil_scoped_release unlocked;
        device_.set_delay(rank, job, delay_ns);
    }

    void wait(std::uint64_t ticket) {
        const py::gil_scoped_release unlocked;
        device_.wait(ticket);
    }

  private:
    cpu::DraftLayerWeights draft_layer(const py::dict& arrays) {
        const std::uint32_t hidden = device_.shape().hidden;
        const DraftShape& d = device_.draft();
        return {bf16(arrays, "qkv", d.qkv_units() * d.head_dim, hidden),
                bf16(arrays, "o", hidden, d.head_columns()),
                bf16(arrays, "gate_up", 2 * d.intermediate, hidden),
                bf16(arrays, "down", hidden, d.intermediate),
                vector(arrays, "input_norm", hidden),
                vector(arrays, "mlp_norm", hidden),
                vector(arrays, "q_norm", d.head_dim),
                vector(arrays, "k_norm", d.head_dim)};
    }

    void wait_idle() {
        const py::gil_scoped_release unlocked;
        device_.wait_idle();
    }

    static const std::map<std::string, cpu::LaunchKind>& kinds() {
        static const std::map<std::string, cpu::LaunchKind> map{{"entry", cpu::LaunchKind::kEntry},
                                                                {"layer", cpu::LaunchKind::kLayer},
                                                                {"head", cpu::LaunchKind::kHead},
                                                                {"draft_context", cpu::LaunchKind::kDraftContext},
                                                                {"draft_layer", cpu::LaunchKind::kDraftLayer},
                                                                {"draft_head", cpu::LaunchKind::kDraftHead},
                                                                {"draft_tree", cpu::LaunchKind::kDraftTree},
                                                                {"accept", cpu::LaunchKind::kAccept}};
        return map;
    }
    static const std::map<std::string, StampMode>& modes() {
        static const std::map<std::string, StampMode> map{
            {"off", StampMode::kOff}, {"store", StampMode::kStore}, {"register", StampMode::kRegister}};
        return map;
    }

    static void check(const py::array& array, const char* name, const std::vector<py::ssize_t>& shape) {
        const std::vector<py::ssize_t> got(array.shape(), array.shape() + array.ndim());
        if (got != shape) {
            throw std::invalid_argument(std::string(name) + " has the wrong shape: want " +
                                        py::str(py::tuple(py::cast(shape))).cast<std::string>() + ", got " +
                                        py::str(py::tuple(py::cast(got))).cast<std::string>());
        }
    }

    // The array's bytes; the array itself is kept for as long as the device.
    template <class T>
    const char* bytes(const py::dict& arrays, const char* name, const std::vector<py::ssize_t>& shape) {
        if (!arrays.contains(name)) throw std::invalid_argument(std::string(name) + " is missing");
        if (!py::isinstance<Array<T>>(arrays[name])) {
            throw std::invalid_argument(std::string(name) + " must be a C-contiguous array of " +
                                        py::str(py::dtype::of<T>()).cast<std::string>());
        }
        const auto array = py::reinterpret_borrow<py::array>(arrays[name]);
        check(array, name, shape);
        kept_.append(array);
        return static_cast<const char*>(array.data());
    }

    const float* vector(const py::dict& arrays, const char* name, std::uint32_t size) {
        return reinterpret_cast<const float*>(bytes<float>(arrays, name, {size}));
    }

    Matrix bf16(const py::dict& arrays, const char* name, std::uint32_t rows, std::uint32_t k) {
        return {Format::kBf16, rows, k, bytes<std::uint16_t>(arrays, name, {rows, k}), nullptr};
    }

    cpu::Experts experts(const py::dict& arrays, const std::string& name, std::uint32_t rows, std::uint32_t k) {
        const std::uint32_t count = device_.shape().experts;
        if (arrays.contains(name)) {
            return {{Format::kBf16, rows, k, bytes<std::uint16_t>(arrays, name.c_str(), {count, rows, k}), nullptr},
                    nullptr};
        }
        return {{Format::kNvfp4, rows, k, bytes<std::uint8_t>(arrays, (name + "_codes").c_str(), {count, rows, k / 2}),
                 bytes<std::uint8_t>(arrays, (name + "_scales").c_str(), {count, rows, k / 16})},
                vector(arrays, (name + "_global").c_str(), count)};
    }

    template <class T>
    static Array<T> copy_of(const std::vector<T>& values, const std::vector<py::ssize_t>& shape) {
        Array<T> out(shape);
        std::copy(values.begin(), values.end(), out.mutable_data());
        return out;
    }

    std::vector<py::ssize_t> kv_shape() const {
        const Shape& s = device_.shape();
        return {s.kv_heads, s.capacity, s.head_dim};
    }

    py::list kept_;
    cpu::Device device_;
};

}  // namespace

void bind_cpu(py::module_ module) {
    bind_launch_failed<cpu::LaunchFailed>(module);
    module.attr("TOKENS") = kTokens;
    module.def("clock_ns", &stamp_clock_ns, "The clock of the host device's stamps (CLOCK_MONOTONIC), ns");
    py::class_<PyDevice>(module, "Device", "Virtual ranks of blocks whose warps are threads")
        .def(py::init<const py::dict&, std::uint32_t, std::uint32_t, std::uint64_t, const py::object&>(),
             py::arg("shape"), py::arg("stages") = 6, py::arg("stage_bytes") = 16384,
             py::arg("budget_ns") = 30'000'000'000ull, py::arg("draft") = py::none())
        .def("set_layer", &PyDevice::set_layer, py::arg("rank"), py::arg("layer"), py::arg("arrays"),
             py::arg("global_attention"))
        .def("set_head", &PyDevice::set_head, py::arg("rank"), py::arg("arrays"))
        .def("set_draft", &PyDevice::set_draft, py::arg("rank"), py::arg("arrays"), py::arg("layers"))
        .def("set_step", &PyDevice::set_step, py::arg("step"), "What is named of the step's state, on every rank")
        .def("step", &PyDevice::step, py::arg("rank"), "The state that the last launch left")
        .def("features", &PyDevice::features, py::arg("rank"), "bf16 bits, uint16[16, target layers * hidden]")
        .def("set_features", &PyDevice::set_features, py::arg("rank"), py::arg("features"))
        .def("draft_kv", &PyDevice::draft_kv, py::arg("rank"), py::arg("layer"), "(k, v) as bf16 bits")
        .def("set_draft_kv", &PyDevice::set_draft_kv, py::arg("rank"), py::arg("layer"), py::arg("k"), py::arg("v"))
        .def("draft_q", &PyDevice::draft_q, py::arg("rank"), "bf16 bits, uint16[16, heads * dim]")
        .def("set_draft_q", &PyDevice::set_draft_q, py::arg("rank"), py::arg("q"))
        .def("set_residual", &PyDevice::set_residual, py::arg("residual"))
        .def("residual", &PyDevice::residual, py::arg("rank"), "float32[16, hidden] that the last launch left")
        .def("logits", &PyDevice::logits, py::arg("rank"), "float32[16, vocab of the rank]")
        .def("projection", &PyDevice::projection, py::arg("rank"), "(q, gate) as bf16 bits, uint16[16, heads * dim]")
        .def("set_projection", &PyDevice::set_projection, py::arg("rank"), py::arg("q"), py::arg("gate"))
        .def("kv", &PyDevice::kv, py::arg("rank"), py::arg("layer"), "(k, v) as bf16 bits")
        .def("set_kv", &PyDevice::set_kv, py::arg("rank"), py::arg("layer"), py::arg("k"), py::arg("v"))
        .def("set_delay", &PyDevice::set_delay, py::arg("rank"), py::arg("job"), py::arg("delay_ns"))
        .def("launch", &PyDevice::launch, py::arg("kind"), py::arg("layer"), py::arg("position"), py::arg("stamps"),
             py::arg("address") = 0, py::arg("epoch") = 0, "Queues a launch; returns its ticket")
        .def("wait", &PyDevice::wait, py::arg("ticket"),
             "Until the launch has ended. Raises LaunchFailed(report) when a wait in it ran out of time");
}

}  // namespace musetrace::bindings
