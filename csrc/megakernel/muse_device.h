// The GPU device: the ranks of a model that one GPU holds, a layer a launch. All ranks of the model, or some of them
// while other processes hold the others on GPUs of their own. Plain C++ on the CUDA runtime; the kernels are behind
// layer_kernel.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "megakernel/device_buffer.h"
#include "megakernel/draft/draft_device.h"
#include "megakernel/layer_kernel.cuh"
#include "megakernel/peer_memory.h"
#include "megakernel/step/step_device.h"
#include "musetrace/abi/muse_draft_jobs.h"
#include "musetrace/abi/muse_hopper_jobs.h"
#include "musetrace/abi/muse_step_jobs.h"

namespace musetrace::megakernel {

struct MuseOptions {
    Stop4 stop4 = Stop4::kSumsq;
    // One rank of shape.ranks is held; what its peers would send, it sends to itself.
    bool loopback = false;
    bool programmatic = true;
    std::uint64_t budget_ns = 100'000'000;
    // Two stages on their way: less bandwidth while a stream runs alone, but shorter hops, and the layer is 4 %
    // faster than with the 48 KB that a stream alone wants (NOTES.md).
    std::uint32_t in_flight_bytes = 18'432;
    // The ranks held here: `held` of shape.ranks from `first_rank` on; 0: all of them.
    std::uint32_t first_rank = 0;
    std::uint32_t held = 0;
};

// A wait of a launch ran out of time. Its site counts the jobs of MuseHopper, behind them those of MuseDraft, and then
// those of MuseStep.
class WaitTimedOut : public std::runtime_error {
  public:
    explicit WaitTimedOut(const abi::WaitReport& report)
        : std::runtime_error("a wait inside the launch ran out of time"), report(report) {}
    abi::WaitReport report;
};

// kDraftHead: lm_head behind the last draft layer. From kDraftTree on: step/params.h. All from kDraftContext on need a
// draft.
enum class Launched : std::uint8_t {
    kEntry,
    kLayer,
    kHead,
    kDraftContext,
    kDraftLayer,
    kDraftHead,
    kDraftTree,
    kEmbed,
    kAccept,
    kKeep
};

struct LaunchRequest {
    Launched kind;
    std::uint32_t layer;
    char* stamps;         // device address of the first held rank's region, or null
    std::uint32_t epoch;  // added to that of the step
};

// Of launches of the target, of draft layers and their context, and of those between passes.
struct StampRows {
    StampRow target{abi::kSlotMap<abi::MuseHopper>.total, 0};
    StampRow draft{abi::kSlotMap<abi::MuseDraft>.total, 0};
    StampRow step{abi::kSlotMap<abi::MuseStep>.total, 0};
};

// A `rank` is counted among those held here, but for set_lost_block and reports, which mean it among all of the model.
//
// With ranks in other processes: every process exports its handles, connects to the others', and all of them meet
// before the first launch; they do so again when all have added a draft. From then on all launch the same, in the same
// order. When a launch was given up in one of them, all of them end theirs, meet, reset(), and meet again. At the end
// all disconnect(), meet, and withdraw their handles: memory that a peer has mapped must not be freed. A device that is
// destroyed without that leaves its exchange to the end of the process.
class MuseDevice {
  public:
    // Throws std::invalid_argument when the shape cannot be run here, std::runtime_error when CUDA fails.
    MuseDevice(const Shape& shape, const MuseOptions& options);
    ~MuseDevice();
    MuseDevice(const MuseDevice&) = delete;
    MuseDevice& operator=(const MuseDevice&) = delete;

    const Shape& shape() const { return shape_; }
    std::uint32_t ranks() const { return ranks_; }
    cudaStream_t stream() const { return stream_; }

    // Device addresses, which belong to the caller and outlive this. `next` is the layer's own projection and norm.
    void set_layer(std::uint32_t rank, std::uint32_t layer, const LayerWeights& weights, const NextWeights& own,
                   bool global_attention, bool bf16_experts);
    void set_head(std::uint32_t rank, const char* lm_head, const float* final_norm);
    void set_rope(const float* rope) { rope_ = rope; }
    // Queued behind what was launched: position of the first of 16 tokens in a chain, and a number added to the epochs
    // of the launches.
    void set_state(std::uint32_t position, std::uint32_t epoch);
    void set_epoch(std::uint32_t epoch);
    // The whole state, its rows placed as the tree's parents say; no launch may run.
    void set_step(StepState state);
    StepState step();
    void set_delay_seed(std::uint32_t seed);
    void set_lost_block(std::uint32_t block) { lost_block_ = block; }
    // Where slots of launches stand; a launch's own table alone to begin with.
    void set_stamp_rows(const StampRows& rows) { stamp_rows_ = rows; }

    // A draft model beside it, whose launches then can be asked for. Throws std::invalid_argument when its shape cannot
    // be run here. With ranks in other processes connect() comes behind it, whether it was called before or not.
    void add_draft(const DraftShape& shape, std::uint32_t in_flight_bytes);
    // Throws std::logic_error when there is none.
    draft::DraftDevice& draft();

    // Of the ranks held here, for other processes. Both throw std::runtime_error when CUDA refuses.
    std::vector<PeerHandles> handles();
    std::size_t handles_of_rank() const { return draft_ == nullptr ? kPeerRegionsOfTarget : kPeerRegions; }
    // Maps the ranks of other processes; [rank of the model], those of the ranks held here are not looked at. What was
    // mapped before stays where it is.
    void connect(const std::vector<PeerHandles>& all);
    // Instead of that, with the other ranks on devices of this process, and of this GPU. Their launches must run side
    // by side with ours, so none of these devices may launch programmatically: what waits for its turn takes up SMs.
    void connect_here(const std::vector<MuseDevice*>& others);
    // Ends the mappings; no process may have a launch left.
    void disconnect();
    // Once all processes have disconnected: the exchange may be freed.
    void withdraw_handles() { exported_ = false; }

    // Throws std::logic_error while ranks of other processes are not connected, or a failed launch is not reset.
    void launch(const LaunchRequest& request, LayerBuild build);
    // A graph of launches; returns its number.
    std::size_t capture(const std::vector<LaunchRequest>& requests, LayerBuild build);
    void replay(std::size_t graph);
    // Until all that was launched has ended. Throws WaitTimedOut when a wait in it did not end well. The device is
    // usable afterwards; with ranks in other processes only behind reset(), for these may still be writing.
    void synchronize();
    // As before the first launch, for the exchange of the ranks held here. No launch may run, in any process.
    void reset();
    KernelFit fit(LayerBuild build) const;

    // What the next launch reads. Only when nothing runs.
    float* residual(std::uint32_t rank) { return residual_of(rank); }
    // What the next launch shall read.
    float* new_residual(std::uint32_t rank) {
        feature_ = kNoFeature;
        return residual_of(rank);
    }
    std::uint16_t* q(std::uint32_t rank) { return at(rank).q[parity_].as<std::uint16_t>(); }
    std::uint16_t* gate(std::uint32_t rank) { return at(rank).gate[parity_].as<std::uint16_t>(); }
    std::uint16_t* k(std::uint32_t rank, std::uint32_t layer) { return at(rank).k.at(layer).as<std::uint16_t>(); }
    std::uint16_t* v(std::uint32_t rank, std::uint32_t layer) { return at(rank).v.at(layer).as<std::uint16_t>(); }
    float* logits(std::uint32_t rank) { return at(rank).logits.as<float>(); }
    // The exchange copy that the last launch read, for tests of its values.
    char* last_exchange(std::uint32_t rank) { return at(rank).exchange[parity_ ^ 1u].as<char>(); }
    const ExchangeLayout& exchange_layout() const { return exchange_; }
    // Both copies empty, everything else that a launch writes filled with a pattern.
    void poison();

  private:
    struct Layer {
        LayerWeights weights{};
        NextWeights own{};
        bool global_attention = false, bf16_experts = false, set = false;
    };
    struct Rank {
        Rank(const Shape& s, const Plan& plan, const ExchangeLayout& exchange);
        std::vector<Layer> layers;
        const char* lm_head = nullptr;
        const float* final_norm = nullptr;
        Buffer exchange[2], residual[2], q[2], gate[2], middle, partial, logits;
        std::vector<Buffer> k, v;
    };

    Rank& at(std::uint32_t rank) { return *all_.at(rank); }
    void launch_layer_kind(const LaunchRequest& request, LayerBuild build);
    void launch_head_kind(const LaunchRequest& request, LayerBuild build);
    void launch_draft_kind(const LaunchRequest& request, LayerBuild build);
    void launch_step_kind(const LaunchRequest& request, LayerBuild build);
    // Behind a layer whose residual stream the draft takes, it lies in the draft's memory until the next step.
    float* residual_of(std::uint32_t rank) {
        return feature_ == kNoFeature ? at(rank).residual[parity_].as<float>() : draft_->features(rank, feature_);
    }
    // Which of the draft's features a layer's residual stream is, or kNoFeature.
    std::uint32_t feature_behind(std::uint32_t layer) const;
    // What kernels of both kinds are told.
    template <class Params>
    void set_shared_params(const LaunchRequest& request, Params& p) const {
        p.shape = shape_;
        p.ranks = ranks_;
        p.first_rank = options_.first_rank;
        p.plan = plan_;
        p.programmatic = options_.programmatic;
        p.in_flight_bytes = options_.in_flight_bytes;
        p.budget_ns = options_.budget_ns;
        p.state = state_.as<StepState>();
        p.report = device_report_;
        p.abort = abort_.as<std::uint32_t>();
        p.stamps = request.stamps;
        p.epoch = request.epoch;
        p.stamp_row = stamp_rows_.target;
    }
    void set_rank_params(std::uint32_t r, std::uint32_t layer, std::uint32_t next, LayerParams& p);
    void require_ready() const;
    bool is_here(std::uint32_t rank) const { return rank - options_.first_rank < ranks_; }
    bool is_whole() const { return options_.loopback || ranks_ == shape_.ranks; }
    char* exchange_of(std::uint32_t rank);
    // What peers of a rank held here write to, by PeerRegion.
    std::vector<char*> regions(std::uint32_t rank);
    // All peers are placed: their memory for the launches of all kinds.
    void use_peers();
    void reset_exchange();

    const Shape shape_;
    const MuseOptions options_;
    const Plan plan_;
    const ExchangeLayout exchange_;
    const std::uint32_t ranks_;  // held here
    std::vector<std::unique_ptr<Rank>> all_;
    PeerMemory peers_;
    bool connected_;         // to all ranks that are not held here
    bool exported_ = false;  // other processes may have mapped what they write to
    bool failed_ = false;    // and not reset
    Buffer state_, abort_, shares_, entry_gates_;
    abi::WaitReport* host_report_ = nullptr;    // pinned
    abi::WaitReport* device_report_ = nullptr;  // the same, as the GPU sees it
    const float* rope_ = nullptr;
    cudaStream_t stream_ = nullptr;
    std::uint32_t parity_ = 0;
    static constexpr std::uint32_t kNoFeature = 0xFFFFFFFF;
    std::uint32_t feature_ = kNoFeature;  // where the residual stream is
    std::uint32_t delay_seed_ = 0;
    std::uint32_t lost_block_ = 0xFFFFFFFF;
    StampRows stamp_rows_;
    struct DestroyGraph {
        void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
        void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
    };
    template <class Handle>
    using OwnedGraph = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyGraph>;
    // Which copies of the exchanges the next launch takes, the target's and the draft's: the number of a graph's
    // variant.
    static constexpr std::uint32_t kVariants = 4;
    std::uint32_t variant() const { return parity_ + (draft_ == nullptr ? 0 : 2 * draft_->parity()); }
    void set_variant(std::uint32_t variant);
    OwnedGraph<cudaGraphExec_t> captured(const std::vector<LaunchRequest>& requests, LayerBuild build);
    struct Graph {
        OwnedGraph<cudaGraphExec_t> exec[kVariants];
        std::uint32_t flips = 0;  // of the variant, by a replay
    };
    std::vector<Graph> graphs_;
    std::unique_ptr<draft::DraftDevice> draft_;
    std::unique_ptr<step::StepDevice> step_;
    DraftShape draft_shape_;
};

}  // namespace musetrace::megakernel
