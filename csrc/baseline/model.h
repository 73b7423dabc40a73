// A rank's model as the chain sees it: where everything lies in device memory, and the steps of a pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "baseline/graphs.h"

namespace musetrace::baseline {

struct ChainLayer {
    megakernel::LayerWeights weights;
    megakernel::NextWeights projection;  // into the layer: what the one in front of it needs
    bool global_attention;
    bool bf16_experts;
    std::uint16_t* k;
    std::uint16_t* v;
};

// Throws std::invalid_argument when something that a step needs is not set.
class ChainModel {
  public:
    // In place of a layer number: behind the last layer.
    static constexpr std::uint32_t kHead = ~0u;

    // `buffers` has the shape and all that is the same in every step.
    explicit ChainModel(const ChainParams& buffers) : buffers_(buffers), layers_(buffers.shape.layers) {}

    void set_layer(std::uint32_t number, const ChainLayer& layer) {
        require_number(number);
        layers_[number] = layer;
    }
    void set_head(const char* lm_head, const float* final_norm) {
        buffers_.lm_head = lm_head;
        final_norm_ = final_norm;
    }
    void set_rope(const float* rope) { buffers_.rope = rope; }

    const ChainLayer& layer(std::uint32_t number) const {
        require_number(number);
        if (!layers_[number]) {
            throw std::invalid_argument("layer " + std::to_string(number) + " has no weights; call set_layer");
        }
        return *layers_[number];
    }
    std::uint32_t behind(std::uint32_t number) const {
        require_number(number);
        return number + 1 < layers_.size() ? number + 1 : kHead;
    }

    ChainStep entry_step(std::uint32_t next) const { return {ChainKind::kEntry, params(next)}; }
    ChainStep head_step() const { return {ChainKind::kHead, params(kHead)}; }
    ChainStep layer_step(std::uint32_t number, std::uint32_t next) const {
        const ChainLayer& from = layer(number);
        ChainStep step{ChainKind::kLayer, params(next)};
        step.params.layer = from.weights;
        step.params.global_attention = from.global_attention;
        step.params.bf16_experts = from.bf16_experts;
        step.params.k = from.k;
        step.params.v = from.v;
        return step;
    }

    // A pass through some layers, each of them projecting for the one behind it in the list. The last one projects for
    // the head or the layer behind it; where that is not set, for the first of the list, so that passes go round.
    std::vector<ChainStep> pass(const std::vector<std::uint32_t>& numbers, bool with_head, bool with_entry) const {
        if (numbers.empty()) throw std::invalid_argument("a pass of the baseline chain needs layers");
        std::vector<ChainStep> steps;
        if (with_entry) steps.push_back(entry_step(numbers.front()));
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const bool last = i + 1 == numbers.size();
            steps.push_back(layer_step(numbers[i], last ? end_of(numbers, with_head) : numbers[i + 1]));
        }
        if (with_head) steps.push_back(head_step());
        return steps;
    }
    std::uint32_t end_of(const std::vector<std::uint32_t>& numbers, bool with_head) const {
        const std::uint32_t next = with_head ? kHead : behind(numbers.back());
        return next == kHead || layers_[next] ? next : numbers.front();
    }

  private:
    ChainParams params(std::uint32_t next) const {
        if (buffers_.rope == nullptr) throw std::invalid_argument("the rotary table is not set; call set_rope");
        ChainParams p = buffers_;
        if (next == kHead) {
            if (final_norm_ == nullptr) throw std::invalid_argument("the head is not set; call set_head");
            p.next = {nullptr, final_norm_};
            return p;
        }
        const ChainLayer& to = layer(next);
        p.next = to.projection;
        p.next_global_attention = to.global_attention;
        p.next_k = to.k;
        p.next_v = to.v;
        return p;
    }
    void require_number(std::uint32_t number) const {
        if (number < layers_.size()) return;
        throw std::invalid_argument("there is no layer " + std::to_string(number) + " among " +
                                    std::to_string(layers_.size()));
    }

    ChainParams buffers_;
    const float* final_norm_ = nullptr;
    std::vector<std::optional<ChainLayer>> layers_;
};

}  // namespace musetrace::baseline
