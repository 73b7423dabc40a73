// The draft of the ranks that a GPU holds: its weights' addresses, cache, exchange, and its launches. Owned by the
// MuseDevice of the target, with whose launches its own go into one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "megakernel/device_buffer.h"
#include "megakernel/draft/kernel.cuh"

namespace musetrace::megakernel::draft {

// What the draft has in common with its target.
struct Target {
    std::uint32_t ranks;  // held here, from `first_rank` of the model's on
    std::uint32_t first_rank;
    bool loopback;
    bool programmatic;
    std::uint64_t budget_ns;
    cudaStream_t stream;
    const StepState* state;
    abi::WaitReport* report;
    std::uint32_t* abort;
};

struct OuterWeights {
    const char* fc;
    const float* context_norm;
    const float* norm;
    const std::uint16_t* embedding;
};

class DraftDevice {
  public:
    // Throws std::invalid_argument when the shape cannot be run here, std::runtime_error when CUDA fails.
    DraftDevice(const DraftSizes& shape, std::uint32_t mask_token, std::uint32_t in_flight_bytes, const Target& target);

    const DraftSizes& shape() const { return shape_; }
    // Device addresses, which belong to the caller and outlive this.
    void set_layer(std::uint32_t rank, std::uint32_t layer, const DraftLayerWeights& weights);
    void set_outer(std::uint32_t rank, const OuterWeights& weights);
    void set_rope(const float* rope) { rope_ = rope; }
    void set_delay_seed(std::uint32_t seed) { delay_seed_ = seed; }
    // Both copies of the exchange of a rank of the model that is not held here.
    void set_peer(std::uint32_t rank, char* first, char* second) { peers_.at(rank) = {first, second}; }
    // Of a rank held here.
    char* exchange(std::uint32_t rank, std::uint32_t which) const { return all_.at(rank)->exchange[which].as<char>(); }
    // Other processes may have mapped it: it stays until the end of the process.
    void leave_exchange();

    // `layer` is not looked at in a context launch.
    void launch(DraftKind kind, std::uint32_t layer, LayerBuild build, char* stamps, std::uint32_t epoch,
                const StampRow& stamp_row);
    KernelFit fit(LayerBuild build) const;

    // Which copy of the exchange the next launch takes; a captured graph begins with the one it was captured for.
    std::uint32_t parity() const { return parity_; }
    void set_parity(std::uint32_t parity) { parity_ = parity; }

    // What the last launch left: the input of lm_head, bf16 by columns.
    const char* normed(std::uint32_t rank) const { return last_exchange(rank) + exchange_.x2; }
    // c, of a context launch.
    const char* context(std::uint32_t rank) const { return last_exchange(rank) + exchange_.x1; }

    float* residual(std::uint32_t rank) { return at(rank).residual.as<float>(); }
    // The copy that the next launch reads.
    std::uint16_t* q(std::uint32_t rank) { return at(rank).q[parity_].as<std::uint16_t>(); }
    DraftCache cache(std::uint32_t rank, std::uint32_t layer) const;
    const std::uint16_t* embedding(std::uint32_t rank) const { return all_.at(rank)->outer.embedding; }
    float* features(std::uint32_t rank, std::uint32_t which) { return at(rank).features.at(which).as<float>(); }

    // Both copies of the exchange empty; no launch may run.
    void reset_exchange();
    // The same, and everything else that a launch writes but the caches filled with a pattern.
    void poison();

  private:
    struct Rank {
        Rank(const DraftSizes& s, const DraftExchange& exchange);
        std::vector<DraftLayerWeights> layers;
        OuterWeights outer{};
        Buffer exchange[2], q[2], residual, table;
        std::vector<Buffer> k, v, features;
    };

    Rank& at(std::uint32_t rank) { return *all_.at(rank); }
    const char* last_exchange(std::uint32_t rank) const {
        return all_.at(rank)->exchange[parity_ ^ 1u].as<const char>();
    }
    void set_rank_params(std::uint32_t r, std::uint32_t layer, DraftParams& p);
    // This launch's copy, of a rank of the model.
    char* exchange_of(std::uint32_t rank) const;

    const DraftSizes shape_;
    const std::uint32_t mask_token_;
    const std::uint32_t in_flight_bytes_;
    const Target target_;
    const DraftPlan plan_;
    const DraftExchange exchange_;
    std::vector<std::unique_ptr<Rank>> all_;
    std::array<std::array<char*, 2>, kMaxRanks> peers_{};
    Buffer shares_;
    const float* rope_ = nullptr;
    std::uint32_t parity_ = 0;
    std::uint32_t delay_seed_ = 0;
};

}  // namespace musetrace::megakernel::draft
