// Launches of the GPU device beside those of layers: the head, the draft's, and graphs of all of them.
#include <cstddef>
#include <cstring>
#include <utility>

#include "megakernel/cuda_errors.h"
#include "megakernel/muse_device.h"

namespace musetrace::megakernel {

void MuseDevice::launch_head_kind(const LaunchRequest& request, LayerBuild build) {
    HeadParams p{};
    set_shared_params(request, p);
    const bool drafts = request.kind == Launched::kDraftHead;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
        Rank& rank = at(r);
        require(rank.lm_head != nullptr, "the head has no weights yet");
        p.rank[r].lm_head = rank.lm_head;
        p.rank[r].x = drafts ? draft().normed(r) : rank.exchange[parity_ ^ 1u].as<char>() + exchange_.x5;
        p.rank[r].partial = rank.partial.as<float>();
        p.rank[r].logits = rank.logits.as<float>();
    }
    check(launch_head(build, p, stream_), "launching the head kernel");
    check(launch_head_sum(p, stream_), "launching the sum of the head");
}

void MuseDevice::add_draft(const DraftShape& shape, std::uint32_t in_flight_bytes) {
    require(shape.head_dim == draft::kHeadDim, "the draft's head_dim must be 128");
    require(shape.q_heads != 0 && shape.kv_heads != 0, "a rank of the draft has no heads: use a lower TP");
    draft_ = std::make_unique<draft::DraftDevice>(
        draft::sizes_of(shape_, shape), shape.mask_token, in_flight_bytes,
        draft::Target{ranks_, options_.first_rank, options_.loopback, options_.programmatic, options_.budget_ns,
                      stream_, state_.as<StepState>(), device_report_, abort_.as<std::uint32_t>()});
    draft_->set_delay_seed(delay_seed_);
    draft_shape_ = shape;
    std::vector<std::vector<step::KvRows>> caches(ranks_);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
        for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) caches[r].push_back({k(r, layer), v(r, layer)});
    }
    step_ = std::make_unique<step::StepDevice>(
        step::Target{shape_, options_.first_rank, options_.loopback, options_.programmatic, options_.budget_ns, stream_,
                     state_.as<StepState>(), device_report_, abort_.as<std::uint32_t>()},
        caches);
    step_->set_delay_seed(delay_seed_);
    connected_ = is_whole();
}

draft::DraftDevice& MuseDevice::draft() {
    if (draft_ == nullptr) throw std::logic_error("the device has no draft: add_draft() before its launches");
    return *draft_;
}

std::uint32_t MuseDevice::feature_behind(std::uint32_t layer) const {
    for (std::uint32_t i = 0; i < draft_shape_.num_targets; ++i) {
        if (draft_shape_.targets[i] == layer) return i;
    }
    return kNoFeature;
}

void MuseDevice::set_epoch(std::uint32_t epoch) {
    check(cudaMemcpyAsync(state_.as<char>() + offsetof(StepState, epoch), &epoch, sizeof epoch, cudaMemcpyHostToDevice,
                          stream_),
          "setting the step's epoch");
}

void MuseDevice::set_step(StepState state) {
    check(cudaStreamSynchronize(stream_), "running the launches");
    require(state.position + kTokens <= shape_.capacity, "the KV cache is full: position " +
                                                             std::to_string(state.position) + " + 16 tokens > " +
                                                             std::to_string(shape_.capacity));
    const RowPlaces rows = tree_rows(state.parents);
    std::memcpy(state.depth, rows.depth, sizeof rows.depth);
    std::memcpy(state.sees, rows.sees, sizeof rows.sees);
    write_bytes(state_.as<char>(), &state, sizeof state, "setting the step's state");
}

StepState MuseDevice::step() {
    StepState state{};
    synchronize();
    check(cudaMemcpy(&state, state_.as<char>(), sizeof state, cudaMemcpyDeviceToHost), "reading the step's state");
    return state;
}

void MuseDevice::set_delay_seed(std::uint32_t seed) {
    delay_seed_ = seed;
    if (draft_ != nullptr) draft_->set_delay_seed(seed);
    if (step_ != nullptr) step_->set_delay_seed(seed);
}

void MuseDevice::launch_draft_kind(const LaunchRequest& request, LayerBuild build) {
    const bool context = request.kind == Launched::kDraftContext;
    draft().launch(context ? draft::DraftKind::kContext : draft::DraftKind::kLayer, request.layer, build,
                   request.stamps, request.epoch, stamp_rows_.draft);
}

void MuseDevice::launch_step_kind(const LaunchRequest& request, LayerBuild build) {
    const step::StepKind kind = request.kind == Launched::kDraftTree ? step::StepKind::kTree
                                : request.kind == Launched::kEmbed   ? step::StepKind::kEmbed
                                : request.kind == Launched::kAccept  ? step::StepKind::kAccept
                                                                     : step::StepKind::kKeep;
    if (kind == step::StepKind::kEmbed) feature_ = kNoFeature;
    std::vector<step::RankMemory> ranks;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
        ranks.push_back({logits(r), at(r).residual[parity_].as<float>(), draft().embedding(r)});
    }
    step_->launch(kind, build, ranks, request.stamps, request.epoch, stamp_rows_.step);
}

void MuseDevice::set_variant(std::uint32_t variant) {
    parity_ = variant % 2;
    if (draft_ != nullptr) draft_->set_parity(variant / 2);
}

MuseDevice::OwnedGraph<cudaGraphExec_t> MuseDevice::captured(const std::vector<LaunchRequest>& requests,
                                                             LayerBuild build) {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing a graph");
    std::string wrong;
    try {
        for (const LaunchRequest& request : requests) launch(request, build);
    } catch (const std::exception& error) {
        wrong = error.what();
    }
    cudaGraph_t ended_with = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &ended_with);
    const OwnedGraph<cudaGraph_t> graph(ended_with);
    if (!wrong.empty()) throw std::runtime_error(wrong);
    check(ended, "capturing a graph");
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph.get(), 0), "instantiating a graph");
    return OwnedGraph<cudaGraphExec_t>(executable);
}

std::size_t MuseDevice::capture(const std::vector<LaunchRequest>& requests, LayerBuild build) {
    Graph graph;
    const std::uint32_t before = variant(), variants = draft_ == nullptr ? 2 : kVariants;
    try {
        for (std::uint32_t first = 0; first < variants; ++first) {
            set_variant(first);
            graph.exec[first] = captured(requests, build);
            graph.flips = variant() ^ first;
        }
    } catch (...) {
        set_variant(before);
        throw;
    }
    set_variant(before);
    graphs_.push_back(std::move(graph));
    return graphs_.size() - 1;
}

void MuseDevice::replay(std::size_t index) {
    require_ready();
    const Graph& graph = graphs_.at(index);
    const std::uint32_t first = variant();
    require(graph.exec[first] != nullptr, "the graph was captured before the draft was added");
    check(cudaGraphLaunch(graph.exec[first].get(), stream_), "launching a graph");
    set_variant(first ^ graph.flips);
}

}  // namespace musetrace::megakernel
