// The host megakernel on a tiny random model, run plain and under TSan and
// ASan: decode steps with 1, 2 and 4 virtual ranks, repeats bit for bit, all
// stamp modes, and a lost arrival. The numbers themselves are checked against
// the torch reference from Python (tests/unit/test_cpu_device.py).
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "cpu/device.h"

namespace {

using namespace musetrace;
using namespace musetrace::cpu;

Shape tiny(std::uint32_t ranks, std::uint32_t blocks) {
    Shape s{};
    s.ranks = ranks, s.blocks = blocks, s.layers = 4, s.hidden = 64;
    s.q_heads = 8 / ranks, s.kv_heads = 4 / ranks, s.head_dim = 16;
    s.moe_hidden = 64, s.intermediate = 64, s.experts = 8, s.top_k = 2, s.vocab = 64 / ranks;
    s.capacity = 64, s.window = 24;
    s.rms_eps = 1e-5f, s.post_eps = 1e-8f, s.qk_scale = 5.0f, s.output_multiplier = 0.2f;
    s.softcap = 20.0f, s.routed_scale = 1.0f, s.rope_theta = 10000.0f;
    return s;
}

DraftShape tiny_draft(std::uint32_t ranks) {
    DraftShape d;
    d.layers = 2, d.q_heads = 8 / ranks, d.kv_heads = 4 / ranks, d.head_dim = 16, d.intermediate = 64 / ranks;
    d.window = 24, d.mask_token = 63, d.num_targets = 2, d.targets[0] = 1, d.targets[1] = 3;
    d.rms_eps = 1e-6f, d.rope_theta = 10000.0f;
    return d;
}

// Random weights of a rank; everything that a Matrix points into.
class RandomWeights {
  public:
    explicit RandomWeights(std::uint32_t seed) : random_(seed) {}

    LayerWeights layer(const Shape& s, std::uint32_t index) {
        LayerWeights w;
        w.qkvg = bf16(s.qkv_units() * s.head_dim, s.hidden);
        w.o = bf16(s.hidden, s.head_columns());
        w.pooler = bf16(s.pooled_rows(), s.hidden);
        w.router = {Format::kFloat32, s.router_rows(), s.hidden, floats(s.router_rows() * s.hidden, 0.0f, 0.3f),
                    nullptr};
        w.unpooler = bf16(s.hidden, s.pooled_rows());
        const bool fp4 = index != 0 && index + 1 != s.layers;
        w.gate_up = experts(s, 2 * s.features(), s.moe_hidden, fp4);
        w.down = experts(s, s.pooled_rows(), s.intermediate, fp4);
        w.router_bias = vector(s.experts, 0.0f);
        w.input_norm = vector(s.hidden, 1.0f), w.pre_ffn_norm = vector(s.hidden, 1.0f);
        w.post_ffn_norm = vector(s.hidden, 1.0f);
        w.pre_expert_norm = vector(s.moe_hidden, 1.0f), w.post_expert_norm = vector(s.moe_hidden, 1.0f);
        w.attn_alpha = vector(s.hidden, 0.8f), w.attn_beta = vector(s.hidden, 0.5f);
        w.ffn_alpha = vector(s.hidden, 0.8f), w.ffn_beta = vector(s.hidden, 0.5f);
        w.global_attention = index % 2 == 1;
        return w;
    }
    HeadWeights head(const Shape& s) {
        return {vector(s.hidden, 1.0f), bf16(s.vocab, s.hidden), bf16(s.vocab * s.ranks, s.hidden)};
    }
    DraftWeights draft(const Shape& s, const DraftShape& d) {
        DraftWeights w;
        w.fc = bf16(s.hidden, d.feature_width(s.hidden) / s.ranks);
        w.context_norm = vector(s.hidden, 1.0f), w.norm = vector(s.hidden, 1.0f);
        for (std::uint32_t layer = 0; layer < d.layers; ++layer) {
            w.layers.push_back({bf16(d.qkv_units() * d.head_dim, s.hidden), bf16(s.hidden, d.head_columns()),
                                bf16(2 * d.intermediate, s.hidden), bf16(s.hidden, d.intermediate),
                                vector(s.hidden, 1.0f), vector(s.hidden, 1.0f), vector(d.head_dim, 1.0f),
                                vector(d.head_dim, 1.0f)});
        }
        return w;
    }

  private:
    Experts experts(const Shape& s, std::uint32_t rows, std::uint32_t k, bool fp4) {
        if (!fp4) return {bf16(s.experts * rows, k, rows), nullptr};
        std::vector<char>& codes = keep(std::size_t{s.experts} * rows * k / 2);
        for (char& code : codes) code = static_cast<char>(random_());
        std::vector<char>& scales = keep(std::size_t{s.experts} * rows * k / 16);
        for (char& scale : scales) scale = static_cast<char>(0x20 + random_() % 16);  // 2^-3 .. 2^-1
        return {{Format::kNvfp4, rows, k, codes.data(), scales.data()}, vector(s.experts, 0.25f)};
    }
    Matrix bf16(std::uint32_t rows, std::uint32_t k, std::uint32_t stacked = 0) {
        std::vector<char>& bytes = keep(std::size_t{rows} * k * 2);
        std::normal_distribution<float> normal(0.0f, 0.15f);
        for (std::size_t i = 0; i < bytes.size(); i += 2) {
            const std::uint16_t bits = float_to_bf16(normal(random_));
            std::memcpy(&bytes[i], &bits, 2);
        }
        return {Format::kBf16, stacked == 0 ? rows : stacked, k, bytes.data(), nullptr};
    }
    const char* floats(std::size_t count, float mean, float spread) {
        std::vector<char>& bytes = keep(count * 4);
        std::normal_distribution<float> normal(mean, spread);
        for (std::size_t i = 0; i < bytes.size(); i += 4) {
            const float value = normal(random_);
            std::memcpy(&bytes[i], &value, 4);
        }
        return bytes.data();
    }
    const float* vector(std::size_t count, float mean) {
        return reinterpret_cast<const float*>(floats(count, mean, 0.05f));
    }
    std::vector<char>& keep(std::size_t size) {
        kept_.push_back(std::make_unique<std::vector<char>>(size));
        return *kept_.back();
    }
    std::mt19937 random_;
    std::vector<std::unique_ptr<std::vector<char>>> kept_;
};

struct Model {
    Shape shape;
    RandomWeights weights{1};
    Device device;

    Model(std::uint32_t ranks, std::uint32_t blocks, DeviceOptions options = {3, 256, 60'000'000'000})
        : shape(tiny(ranks, blocks)), device(shape, options, tiny_draft(ranks)) {
        for (std::uint32_t r = 0; r < ranks; ++r) {
            for (std::uint32_t l = 0; l < shape.layers; ++l) device.rank(r).layers[l] = weights.layer(shape, l);
            device.rank(r).head = weights.head(shape);
            device.rank(r).draft = weights.draft(shape, device.draft());
        }
    }

    // One verify pass of 16 tokens; returns every rank's logits and residual,
    // which must not hold a NaN.
    std::vector<float> step(std::uint32_t position, StampMode mode, std::vector<char>* stamps) {
        std::vector<float> x(std::size_t{kTokens} * shape.hidden);
        std::mt19937 random(position + 1);
        std::normal_distribution<float> normal;
        for (float& value : x) value = normal(random);
        device.set_residual(x.data());
        char* base = stamps == nullptr ? nullptr : stamps->data();
        std::uint64_t ticket = device.launch({LaunchKind::kEntry, 0, position, mode, nullptr, 1});
        for (std::uint32_t l = 0; l < shape.layers; ++l) {
            ticket = device.launch({LaunchKind::kLayer, l, position, mode, l == 1 ? base : nullptr, 1});
        }
        ticket = device.launch({LaunchKind::kHead, shape.layers, position, mode, nullptr, 1});
        device.wait(ticket);
        std::vector<float> out;
        for (std::uint32_t r = 0; r < shape.ranks; ++r) {
            const std::vector<float>& logits = device.rank(r).logits;
            out.insert(out.end(), logits.begin(), logits.end());
        }
        for (const float value : out) CHECK(std::isfinite(value));
        return out;
    }
};

// Whole steps behind a known token; returns every rank's state, one number
// after the other.
std::vector<std::uint32_t> decode(Model& model, std::uint32_t steps, double temperature, StampMode mode,
                                  std::vector<char>* stamps) {
    StepState state;
    state.tokens[0] = 5, state.temperature = temperature;
    for (std::uint32_t r = 0; r < model.shape.ranks; ++r) model.device.rank(r).state = state;
    char* base = stamps == nullptr ? nullptr : stamps->data();
    std::uint64_t ticket = 0;
    const auto launch = [&](LaunchKind kind, std::uint32_t layer) {
        ticket = model.device.launch({kind, layer, kFromState, mode, base, 1});
    };
    std::vector<std::uint32_t> out;
    for (std::uint32_t step = 0; step < steps; ++step) {
        launch(LaunchKind::kDraftContext, 0);
        for (std::uint32_t l = 0; l < model.device.draft().layers; ++l) launch(LaunchKind::kDraftLayer, l);
        for (const LaunchKind kind : {LaunchKind::kDraftHead, LaunchKind::kDraftTree, LaunchKind::kEntry}) {
            launch(kind, 0);
        }
        for (std::uint32_t l = 0; l < model.shape.layers; ++l) launch(LaunchKind::kLayer, l);
        launch(LaunchKind::kHead, 0);
        launch(LaunchKind::kAccept, 0);
        model.device.wait(ticket);
        for (std::uint32_t r = 0; r < model.shape.ranks; ++r) {
            const StepState& of_rank = model.device.rank(r).state;
            CHECK(of_rank.position == model.device.rank(0).state.position);
            out.insert(out.end(), of_rank.chosen, of_rank.chosen + of_rank.kept);
            out.insert(out.end(), of_rank.tokens, of_rank.tokens + kTokens);
        }
    }
    return out;
}

void whole_steps_are_equal_in_every_stamp_mode() {
    for (const std::uint32_t ranks : {1u, 4u}) {
        Model model(ranks, 2);
        const abi::StampLayout layout{2, abi::kSlotMap<MuseLayer>.total, 8};
        std::vector<char> stamps(ranks * layout.region_bytes() + abi::kRegionAlign);
        for (const double temperature : {0.0, 0.8}) {
            const std::vector<std::uint32_t> first = decode(model, 2, temperature, StampMode::kOff, nullptr);
            CHECK(decode(model, 2, temperature, StampMode::kStore, &stamps) == first);
            CHECK(decode(model, 2, temperature, StampMode::kRegister, &stamps) == first);
        }
    }
}

void repeats_are_equal_in_every_stamp_mode() {
    for (const std::uint32_t ranks : {1u, 2u, 4u}) {
        for (const std::uint32_t blocks : {1u, 3u}) {
            Model model(ranks, blocks);
            const abi::StampLayout layout{blocks, abi::kSlotMap<MuseLayer>.total, 8};
            std::vector<char> stamps(ranks * layout.region_bytes() + abi::kRegionAlign);
            const std::vector<float> first = model.step(0, StampMode::kOff, nullptr);
            model.step(16, StampMode::kStore, &stamps);
            CHECK(std::count(stamps.begin(), stamps.end(), 0) < static_cast<std::ptrdiff_t>(stamps.size()));
            const std::vector<float> second = model.step(32, StampMode::kOff, nullptr);
            for (int repeat = 0; repeat < 3; ++repeat) {
                CHECK(model.step(0, StampMode::kRegister, &stamps) == first);
                CHECK(model.step(32, StampMode::kStore, &stamps) == second);
            }
        }
    }
}

// A sender that does not come within the budget: an error that names the stop,
// the queue behind it dropped, and the device usable and right afterwards.
void lost_arrival_is_named_and_survived() {
    Model model(2, 2, {3, 256, 300'000'000});
    const std::vector<float> good = model.step(0, StampMode::kOff, nullptr);
    model.device.set_delay(1, MuseLayer::o_proj_send, 1'500'000'000);
    bool failed = false;
    try {
        model.step(16, StampMode::kOff, nullptr);
    } catch (const LaunchFailed& error) {
        failed = true;
        CHECK(error.report.site == MuseLayer::stop1_wait_ranks);
        CHECK(error.report.waited_ns >= 300'000'000);
    }
    CHECK(failed);
    model.device.set_delay(1, MuseLayer::o_proj_send, 0);
    CHECK(model.step(0, StampMode::kOff, nullptr) == good);
}

}  // namespace

int main() {
    repeats_are_equal_in_every_stamp_mode();
    whole_steps_are_equal_in_every_stamp_mode();
    lost_arrival_is_named_and_survived();
    std::puts("device: passed");
    return 0;
}
