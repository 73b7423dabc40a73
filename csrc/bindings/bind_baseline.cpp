// The baseline chain for Python: weights by their device addresses, which the caller keeps alive; activations and KV
// cache are the chain's own.
#include <cuda_runtime_api.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "baseline/batch_rows.h"
#include "baseline/model.h"
#include "bindings/cuda_memory.h"
#include "bindings/layer_weights.h"
#include "bindings/shape_dict.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using baseline::ChainMode;
using baseline::ChainModel;
using baseline::ChainParams;
using baseline::ChainStep;

template <class T>
using Array = py::array_t<T, py::array::c_style>;

constexpr std::uint64_t kBudgetNs = 2'000'000'000;
constexpr std::uint32_t kHeadDim = 64;

py::object value_of(const py::dict& layer, const char* key) {
    if (!layer.contains(key)) throw std::invalid_argument(std::string("the layer has no '") + key + "'");
    return layer[key];
}

// Bulk copies and 16-byte loads need the alignment.
template <class T>
T* checked_address(std::uintptr_t address, const char* name) {
    if (address == 0 || address % 16 != 0) {
        throw std::invalid_argument(std::string("the address of '") + name + "' is null or no multiple of 16");
    }
    return reinterpret_cast<T*>(address);
}

Shape checked(const Shape& s, bool loopback) {
    if (const char* reason = baseline::unsupported_chain(s, loopback)) {
        throw std::invalid_argument(std::string("the baseline chain cannot run this model: ") + reason);
    }
    int device = 0, major = 0;
    check(cudaGetDevice(&device), "looking for a CUDA device");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking what the device is");
    if (major != 9) {
        throw std::runtime_error("the baseline chain is built for compute capability 9.0; this device has " +
                                 std::to_string(major) + ".x");
    }
    return s;
}

// Of a layer.
struct KvMemory {
    DeviceMemory k, v;
    explicit KvMemory(std::size_t bytes) : k(bytes), v(bytes) {}
};

class BaselineChain {
  public:
    BaselineChain(const py::dict& shape, bool loopback, std::uint32_t sequences)
        : s_(checked(shape_from(shape), loopback)),
          sequences_(baseline::checked_sequences(sequences)),
          scratch_(baseline::make_scratch(s_).bytes),
          residual_(std::size_t{kTokens} * s_.hidden * 4),
          q_(std::size_t{kTokens} * s_.head_columns() * 2),
          gate_(std::size_t{kTokens} * s_.head_columns() * 2),
          logits_(std::size_t{kTokens} * s_.vocab * 4),
          state_(sizeof(megakernel::StepState)),
          rows_(sizeof(baseline::BatchRows)),
          report_(sizeof(abi::WaitReport)),
          caches_(s_.layers),
          model_(buffers()) {
        check(graphs_.open(), "making a stream");
    }

    void set_layer(std::uint32_t layer, const py::dict& at) {
        baseline::ChainLayer next{};
        const auto address = [&](const char* name) {
            const auto value = value_of(at, name).cast<std::uintptr_t>();
            return reinterpret_cast<std::uintptr_t>(checked_address<const char>(value, name));
        };
        next.weights = layer_weights(address);
        next.projection = own_projection(address);
        next.global_attention = value_of(at, "global_attention").cast<bool>();
        next.bf16_experts = value_of(at, "bf16_experts").cast<bool>();
        // Graphs hold the addresses of the cache: it stays when weights are set again.
        model_.behind(layer);  // says what is wrong with the number
        if (!caches_[layer]) {
            caches_[layer] = std::make_unique<KvMemory>(cached_heads() * s_.capacity * kHeadDim * 2);
        }
        next.k = caches_[layer]->k.as<std::uint16_t>();
        next.v = caches_[layer]->v.as<std::uint16_t>();
        model_.set_layer(layer, next);
    }

    void set_head(std::uintptr_t lm_head, std::uintptr_t final_norm) {
        model_.set_head(checked_address<const char>(lm_head, "lm_head"),
                        checked_address<const float>(final_norm, "final_norm"));
    }
    void set_rope(std::uintptr_t table) { model_.set_rope(checked_address<const float>(table, "rope")); }
    void set_position(std::uint32_t position) {
        if (s_.capacity < kTokens || position > s_.capacity - kTokens) {
            throw std::invalid_argument("position " + std::to_string(position) +
                                        " leaves no room for 16 tokens in a KV cache of " +
                                        std::to_string(s_.capacity));
        }
        megakernel::StepState state{};
        state.position = position;
        write_bytes(state_.as<char>(), &state, sizeof state, "setting the position");
    }

    void set_rows(const std::vector<std::uint32_t>& sequences, const std::vector<std::uint32_t>& positions) {
        const baseline::BatchRows rows = baseline::batch_rows(sequences, positions, sequences_, s_.capacity);
        write_bytes(rows_.as<char>(), &rows, sizeof rows, "setting the rows");
    }

    void set_residual(const Array<float>& residual) { upload(residual_, residual, "residual", {kTokens, s_.hidden}); }
    Array<float> residual() const { return token_rows<float>(residual_); }
    void set_projection(const Array<std::uint16_t>& q, const Array<std::uint16_t>& gate) {
        upload(q_, q, "q", {kTokens, s_.head_columns()});
        upload(gate_, gate, "gate", {kTokens, s_.head_columns()});
    }
    py::tuple projection() const {
        return py::make_tuple(token_rows<std::uint16_t>(q_), token_rows<std::uint16_t>(gate_));
    }
    Array<float> logits() const { return token_rows<float>(logits_); }

    // Rows of positions on both sides; on the device v lies transposed.
    void set_kv(std::uint32_t layer, const Array<std::uint16_t>& k, const Array<std::uint16_t>& v) {
        const KvMemory& to = cache(layer);
        const auto heads = static_cast<py::ssize_t>(cached_heads());
        upload(to.k, k, "k", {heads, s_.capacity, kHeadDim});
        require_shape(v, "v", {heads, s_.capacity, kHeadDim});
        upload(to.v, transposed(v.data(), s_.capacity, kHeadDim), "v", {heads, kHeadDim, s_.capacity});
    }
    py::tuple kv(std::uint32_t layer) const {
        const KvMemory& from = cache(layer);
        const py::ssize_t heads = static_cast<py::ssize_t>(cached_heads()), rows = s_.capacity;
        const auto v = from.v.to_host<std::uint16_t>();
        return py::make_tuple(from.k.to_host<std::uint16_t>().reshape({heads, rows, py::ssize_t{kHeadDim}}),
                              transposed(v.data(), kHeadDim, s_.capacity));
    }

    // Whatever the kernels leave for each other and the logits become this byte.
    void poison(std::uint8_t byte) {
        fill_bytes(scratch_.as<char>(), byte, baseline::make_scratch(s_).bytes, "poisoning the scratch");
        fill_bytes(logits_.as<char>(), byte, std::size_t{kTokens} * s_.vocab * 4, "poisoning the logits");
        check(cudaDeviceSynchronize(), "poisoning the scratch");
        final_ = false;
    }

    void run_entry() { run(model_.entry_step(0), false); }
    void run_layer(std::uint32_t layer) {
        const std::uint32_t next = model_.behind(layer);
        run(model_.layer_step(layer, next), next == ChainModel::kHead);
    }
    void run_head() {
        if (!final_) throw std::runtime_error("there is no final norm for lm_head to read; run the last layer first");
        run(model_.head_step(), true);
    }

    std::size_t capture(const std::string& mode, const std::vector<std::uint32_t>& layers, bool with_head,
                        bool with_entry) {
        if (mode != "graph" && mode != "pdl") {
            throw std::invalid_argument("no chain mode is called '" + mode + "'; choose graph or pdl");
        }
        const std::vector<ChainStep> steps = model_.pass(layers, with_head, with_entry);
        check(graphs_.capture(steps, mode == "pdl" ? ChainMode::kProgrammatic : ChainMode::kPlain),
              "capturing the baseline chain");
        leaves_final_.push_back(model_.end_of(layers, with_head) == ChainModel::kHead);
        return graphs_.size() - 1;
    }

    void replay(std::size_t id, std::uint32_t times) {
        require_graph(id);
        check(graphs_.replay(id, times), "launching a graph of the baseline chain");
        finish(leaves_final_[id]);
    }

    std::vector<std::vector<float>> time_graphs(const std::vector<std::size_t>& ids, std::uint32_t rounds) {
        if (ids.empty() || rounds < 1 || rounds > 10000)
            throw std::invalid_argument("choose graphs, and 1 to 10000 rounds");
        for (const std::size_t id : ids) require_graph(id);
        std::vector<std::vector<float>> samples;
        {
            const py::gil_scoped_release unlocked;
            check(graphs_.time(ids, rounds, samples), "timing graphs of the baseline chain");
        }
        finish(false);
        return samples;
    }

    std::uint32_t kernels_per_layer() const { return baseline::kernels_per_layer(s_); }

  private:
    // What is the same in every step.
    ChainParams buffers() const {
        ChainParams p{};
        p.shape = s_;
        p.plan = megakernel::make_plan(s_);
        p.at = baseline::make_scratch(s_);
        p.scale_factor = megakernel::kScaleFactor;
        p.budget_ns = kBudgetNs;
        p.residual = p.next_residual = residual_.as<float>();
        p.q = p.next_q = q_.as<std::uint16_t>();
        p.gate = p.next_gate = gate_.as<std::uint16_t>();
        p.logits = logits_.as<float>();
        p.scratch = scratch_.as<char>();
        p.state = state_.as<megakernel::StepState>();
        p.rows = sequences_ > 1 ? rows_.as<baseline::BatchRows>() : nullptr;
        p.sequences = sequences_;
        p.report = report_.as<abi::WaitReport>();
        return p;
    }

    void run(const ChainStep& step, bool leaves_final) {
        check(baseline::launch_step(step, ChainMode::kPlain, graphs_.stream()), "launching the baseline chain");
        finish(leaves_final);
    }

    // Until all is done. A wait that ran out of time is an error, and the next run starts afresh.
    void finish(bool leaves_final) {
        {
            const py::gil_scoped_release unlocked;
            check(graphs_.wait(), "running the baseline chain");
        }
        abi::WaitReport said;
        check(cudaMemcpy(&said, report_.as<char>(), sizeof said, cudaMemcpyDeviceToHost), "copying the wait report");
        final_ = leaves_final && said.claimed == 0;
        if (said.claimed == 0) return;
        fill_bytes(report_.as<char>(), 0, sizeof said, "clearing the wait report");
        throw std::runtime_error("block " + std::to_string(said.block) + " warp " + std::to_string(said.warp) +
                                 " of the baseline chain waited " + std::to_string(said.waited_ns) + " ns in job " +
                                 std::to_string(said.site) + "; nothing of this run counts");
    }

    const KvMemory& cache(std::uint32_t layer) const {
        model_.layer(layer);  // says what is wrong with the number
        return *caches_[layer];
    }
    void require_graph(std::size_t id) const {
        if (id >= graphs_.size()) throw std::invalid_argument("there is no graph " + std::to_string(id));
    }

    static void require_shape(const py::array& array, const char* name, const std::vector<py::ssize_t>& shape) {
        if (std::vector<py::ssize_t>(array.shape(), array.shape() + array.ndim()) == shape) return;
        throw std::invalid_argument(std::string(name) + " must have the shape " +
                                    py::str(py::tuple(py::cast(shape))).cast<std::string>());
    }
    template <class T>
    static void upload(const DeviceMemory& to, const Array<T>& array, const char* name,
                       const std::vector<py::ssize_t>& shape) {
        require_shape(array, name, shape);
        write_bytes(to.as<char>(), array.data(), static_cast<std::size_t>(array.nbytes()), "copying to the device");
    }
    // [token][whatever there is of each]
    template <class T>
    static Array<T> token_rows(const DeviceMemory& memory) {
        return memory.to_host<T>().reshape({py::ssize_t{kTokens}, py::ssize_t{-1}});
    }
    // [kv_head][rows][columns] to [kv_head][columns][rows].
    Array<std::uint16_t> transposed(const std::uint16_t* from, std::size_t rows, std::size_t columns) const {
        Array<std::uint16_t> out({static_cast<py::ssize_t>(cached_heads()), static_cast<py::ssize_t>(columns),
                                  static_cast<py::ssize_t>(rows)});
        std::uint16_t* to = out.mutable_data();
        for (std::size_t head = 0; head < cached_heads(); ++head, from += rows * columns) {
            for (std::size_t column = 0; column < columns; ++column) {
                for (std::size_t row = 0; row < rows; ++row) *to++ = from[row * columns + column];
            }
        }
        return out;
    }

    // Of all sequences.
    std::size_t cached_heads() const { return std::size_t{sequences_} * s_.kv_heads; }

    Shape s_;
    std::uint32_t sequences_;
    DeviceMemory scratch_, residual_, q_, gate_, logits_, state_, rows_, report_;
    std::vector<std::unique_ptr<KvMemory>> caches_;
    ChainModel model_;
    bool final_ = false;
    baseline::ChainGraphs graphs_;
    std::vector<bool> leaves_final_;
};

}  // namespace

void bind_baseline(py::module_& module) {
    py::class_<BaselineChain>(
        module, "BaselineChain",
        "A rank's decoder as a chain of ordinary kernels on packed weights in device memory. bf16 "
        "values are uint16 bit patterns")
        .def(py::init<const py::dict&, bool, std::uint32_t>(), py::arg("shape"), py::arg("loopback") = false,
             py::arg("sequences") = 1,
             "With loopback, the rank plays its peers: what it would send to them counts for all of their parts. With "
             "several sequences a pass has the rows of set_rows, and each sequence a cache of its own")
        .def("set_layer", &BaselineChain::set_layer, py::arg("layer"), py::arg("addresses"),
             "Device addresses of a layer's packed matrices and vectors, which the caller keeps")
        .def("set_head", &BaselineChain::set_head, py::arg("lm_head"), py::arg("final_norm"))
        .def("set_rope", &BaselineChain::set_rope, py::arg("address"), "float32 [capacity][32][2]: cosine, sine")
        .def("set_position", &BaselineChain::set_position, py::arg("position"), "Of the first of the 16 tokens")
        .def("set_rows", &BaselineChain::set_rows, py::arg("sequences"), py::arg("positions"),
             "With several sequences: whose each of the 16 rows is, and its position")
        .def("set_residual", &BaselineChain::set_residual, py::arg("residual"))
        .def("residual", &BaselineChain::residual, "float32[16, hidden]")
        .def("set_projection", &BaselineChain::set_projection, py::arg("q"), py::arg("gate"))
        .def("projection", &BaselineChain::projection, "(q, gate), uint16[16, heads * 64]")
        .def("set_kv", &BaselineChain::set_kv, py::arg("layer"), py::arg("k"), py::arg("v"))
        .def("kv", &BaselineChain::kv, py::arg("layer"), "(k, v), uint16[sequences * kv heads, capacity, 64]")
        .def("poison", &BaselineChain::poison, py::arg("byte"), "Fills the buffers between the kernels, and the logits")
        .def("run_entry", &BaselineChain::run_entry, "Norm and first projection of the residual stream")
        .def("run_layer", &BaselineChain::run_layer, py::arg("layer"))
        .def("run_head", &BaselineChain::run_head)
        .def("logits", &BaselineChain::logits, "float32[16, vocab of the rank]")
        .def("capture", &BaselineChain::capture, py::arg("mode"), py::arg("layers"), py::arg("with_head") = false,
             py::arg("with_entry") = false, "Number of a graph; mode graph or pdl")
        .def("replay", &BaselineChain::replay, py::arg("graph"), py::arg("times") = 1)
        .def("time_graphs", &BaselineChain::time_graphs, py::arg("graphs"), py::arg("rounds"),
             "Milliseconds of each graph, a list of 2 * rounds; graphs interleaved forward and backward")
        .def_property_readonly("kernels_per_layer", &BaselineChain::kernels_per_layer);
}

}  // namespace musetrace::bindings
