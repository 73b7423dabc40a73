#include "megakernel/muse_device.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "megakernel/cuda_errors.h"

namespace musetrace::megakernel {
namespace {

std::uint32_t held_ranks(const Shape& s, const MuseOptions& options) {
    return options.loopback ? 1 : options.held == 0 ? s.ranks : options.held;
}

Shape checked(const Shape& s, const MuseOptions& options) {
    const char* wrong = unsupported(s);
    require(wrong == nullptr, wrong == nullptr ? "" : wrong);
    require(s.ranks <= kMaxRanks, "at most " + std::to_string(kMaxRanks) + " ranks, not " + std::to_string(s.ranks));
    const std::uint32_t held = held_ranks(s, options), blocks = held * s.blocks;
    require(options.loopback ? options.held == 0 && options.first_rank == 0 : options.first_rank + held <= s.ranks,
            "there are no ranks " + std::to_string(options.first_rank) + " to " +
                std::to_string(options.first_rank + held - 1) + " to hold here");
    KernelFit fit{};
    check(fit_layer(LayerBuild::kOff, fit), "looking for a GPU of compute capability 9.0");
    require(static_cast<int>(blocks) <= fit.blocks,
            std::to_string(blocks) + " blocks do not fit this GPU, which holds " + std::to_string(fit.blocks) +
                " at once; all of them must run together");
    return s;
}

}  // namespace

MuseDevice::Rank::Rank(const Shape& s, const Plan& plan, const ExchangeLayout& e)
    : layers(s.layers),
      exchange{Buffer(exported_bytes(e.bytes)), Buffer(exported_bytes(e.bytes))},
      residual{Buffer(std::size_t{kTokens} * s.hidden * 4), Buffer(std::size_t{kTokens} * s.hidden * 4)},
      q{Buffer(std::size_t{kTokens} * s.head_columns() * 2), Buffer(std::size_t{kTokens} * s.head_columns() * 2)},
      gate{Buffer(std::size_t{kTokens} * s.head_columns() * 2), Buffer(std::size_t{kTokens} * s.head_columns() * 2)},
      middle(std::size_t{kTokens} * s.hidden * 4),
      partial(std::size_t{plan.head_slices} * kTokens * ceil_div(s.vocab, kTileRows) * kTileRows * 4),
      logits(std::size_t{kTokens} * s.vocab * 4) {
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        k.emplace_back(std::size_t{s.kv_heads} * s.capacity * s.head_dim * 2);
        v.emplace_back(std::size_t{s.kv_heads} * s.capacity * s.head_dim * 2);
    }
}

MuseDevice::MuseDevice(const Shape& shape, const MuseOptions& options)
    : shape_(checked(shape, options)),
      options_(options),
      plan_(make_plan(shape)),
      exchange_(make_exchange(shape, plan_, options.stop4)),
      ranks_(held_ranks(shape, options)),
      connected_(is_whole()),
      state_(sizeof(StepState)),
      abort_(sizeof(std::uint32_t)),
      shares_(sizeof(BlockShares) * shape.blocks),
      entry_gates_(std::size_t{2} * shape.hidden * 4) {
    for (std::uint32_t r = 0; r < ranks_; ++r) all_.push_back(std::make_unique<Rank>(shape_, plan_, exchange_));
    std::vector<BlockShares> shares;
    for (std::uint32_t block = 0; block < shape_.blocks; ++block) {
        shares.push_back(block_shares(shape_, plan_, block));
    }
    write_bytes(shares_.as<char>(), shares.data(), shares_.bytes(), "dealing the work");
    const std::vector<float> ones(shape_.hidden, 1.0f);
    write_bytes(entry_gates_.as<float>(), ones.data(), std::size_t{shape_.hidden} * 4,
                "setting the gates of an entry launch");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    check(cudaHostAlloc(reinterpret_cast<void**>(&host_report_), sizeof(abi::WaitReport), cudaHostAllocMapped),
          "allocating pinned memory");
    check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_report_), host_report_, 0),
          "mapping pinned memory");
    *host_report_ = {};
    KernelFit fit{};
    // Every kernel is loaded now: a first launch while another spins could wait for it for ever.
    for (const LayerBuild build : kLayerBuilds) {
        check(fit_layer(build, fit), "loading the layer kernel");
        check(fit_head(build, fit), "loading the head kernel");
    }
    StepState state{};
    state.top_k = kMaxTopK;
    for (std::uint32_t node = 1; node < kTokens; ++node) state.parents[node] = node - 1;
    set_step(state);
    reset_exchange();
}

MuseDevice::~MuseDevice() {
    cudaStreamSynchronize(stream_);
    graphs_.clear();
    cudaStreamDestroy(stream_);
    cudaFreeHost(host_report_);
    if (!exported_) return;
    for (const auto& rank : all_) {
        for (Buffer& copy : rank->exchange) copy.leave();
    }
    if (draft_ != nullptr) draft_->leave_exchange();
    if (step_ != nullptr) step_->leave_parts();
}

std::vector<char*> MuseDevice::regions(std::uint32_t rank) {
    std::vector<char*> all(handles_of_rank());
    all[kExchange0] = at(rank).exchange[0].as<char>();
    all[kExchange1] = at(rank).exchange[1].as<char>();
    if (draft_ != nullptr) {
        all[kDraftExchange0] = draft_->exchange(rank, 0);
        all[kDraftExchange1] = draft_->exchange(rank, 1);
        all[kStepParts] = step_->parts();
    }
    return all;
}

std::vector<PeerHandles> MuseDevice::handles() {
    std::vector<PeerHandles> all;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
        all.push_back(export_regions(options_.first_rank + r, regions(r)));
        exported_ = true;
    }
    return all;
}

void MuseDevice::connect(const std::vector<PeerHandles>& all) {
    require(!options_.loopback && all.size() == shape_.ranks,
            "handles of " + std::to_string(shape_.ranks) + " ranks are needed, not of " + std::to_string(all.size()));
    for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) {
        require(all[rank].size() == handles_of_rank(), "rank " + std::to_string(rank) +
                                                           " has other memory to write to than those here: give all "
                                                           "processes the same draft");
        if (!is_here(rank)) peers_.open(rank, all[rank]);
    }
    use_peers();
}

void MuseDevice::connect_here(const std::vector<MuseDevice*>& others) {
    std::uint32_t found = ranks_;
    for (MuseDevice* other : others) {
        require(other->handles_of_rank() == handles_of_rank(), "all devices need a draft, or none");
        for (std::uint32_t r = 0; r < other->ranks_; ++r, ++found) {
            require(!is_here(other->options_.first_rank + r), "two devices hold a rank");
            peers_.place(other->options_.first_rank + r, other->regions(r));
        }
    }
    require(!options_.loopback && found == shape_.ranks, "these devices do not hold all ranks");
    use_peers();
}

void MuseDevice::use_peers() {
    std::vector<char*> parts;
    for (std::uint32_t rank = 0; draft_ != nullptr && rank < shape_.ranks; ++rank) {
        if (is_here(rank)) continue;
        draft_->set_peer(rank, peers_.region(rank, kDraftExchange0), peers_.region(rank, kDraftExchange1));
        // One of each GPU, though several of its ranks name it.
        char* of_gpu = peers_.region(rank, kStepParts);
        if (std::find(parts.begin(), parts.end(), of_gpu) == parts.end()) parts.push_back(of_gpu);
    }
    if (step_ != nullptr) step_->set_peers(parts);
    connected_ = true;
}

void MuseDevice::disconnect() {
    check(cudaStreamSynchronize(stream_), "running the launches");
    peers_.close();
    connected_ = is_whole();
}

char* MuseDevice::exchange_of(std::uint32_t rank) {
    if (options_.loopback) return at(0).exchange[parity_].as<char>();
    return is_here(rank) ? at(rank - options_.first_rank).exchange[parity_].as<char>()
                         : peers_.region(rank, kExchange0 + parity_);
}

void MuseDevice::require_ready() const {
    if (!connected_) throw std::logic_error("ranks of other processes are not connected: connect() before a launch");
    if (failed_) throw std::logic_error("a launch failed: reset() in all processes before the next");
}

void MuseDevice::set_layer(std::uint32_t rank, std::uint32_t layer, const LayerWeights& weights, const NextWeights& own,
                           bool global_attention, bool bf16_experts) {
    require(layer < shape_.layers, "there is no layer " + std::to_string(layer));
    at(rank).layers[layer] = {weights, own, global_attention, bf16_experts, true};
}

void MuseDevice::set_head(std::uint32_t rank, const char* lm_head, const float* final_norm) {
    at(rank).lm_head = lm_head;
    at(rank).final_norm = final_norm;
}

void MuseDevice::set_state(std::uint32_t position, std::uint32_t epoch) {
    require(position + kTokens <= shape_.capacity, "the KV cache is full: position " + std::to_string(position) +
                                                       " + 16 tokens > " + std::to_string(shape_.capacity));
    const struct {
        std::uint32_t position, epoch;
        RowPlaces rows;
    } state{position, epoch, chain_rows()};
    static_assert(offsetof(StepState, epoch) == sizeof position && offsetof(StepState, tokens) == sizeof state);
    check(cudaMemcpyAsync(state_.as<StepState>(), &state, sizeof state, cudaMemcpyHostToDevice, stream_),
          "setting the step's state");
}

void MuseDevice::launch(const LaunchRequest& request, LayerBuild build) {
    require_ready();
    require(request.kind != Launched::kLayer || request.layer < shape_.layers, "no such layer");
    switch (request.kind) {
        case Launched::kEntry:
        case Launched::kLayer:
            return launch_layer_kind(request, build);
        case Launched::kHead:
        case Launched::kDraftHead:
            return launch_head_kind(request, build);
        case Launched::kDraftContext:
        case Launched::kDraftLayer:
            return launch_draft_kind(request, build);
        default:
            return launch_step_kind(request, build);
    }
}

void MuseDevice::launch_layer_kind(const LaunchRequest& request, LayerBuild build) {
    const bool entry = request.kind == Launched::kEntry;
    const std::uint32_t layer = entry ? 0 : request.layer, next = entry ? 0 : request.layer + 1;
    if (entry) feature_ = kNoFeature;
    LayerParams p{};
    set_shared_params(request, p);
    p.exchange = exchange_;
    p.kind = entry ? LaunchKind::kEntry : LaunchKind::kLayer;
    p.stop4 = options_.stop4;
    p.scale_factor = kScaleFactor;
    p.delay_seed = delay_seed_ ^ options_.first_rank << 16;
    p.lost_block = lost_block_;
    p.shares = shares_.as<BlockShares>();
    p.rope = rope_;
    for (std::uint32_t r = 0; r < ranks_; ++r) set_rank_params(r, layer, next, p);
    check(launch_layer(build, p, stream_), "launching the layer kernel");
    parity_ ^= 1u;
    feature_ = entry ? kNoFeature : feature_behind(layer);
}

void MuseDevice::set_rank_params(std::uint32_t r, std::uint32_t layer, std::uint32_t next, LayerParams& p) {
    Rank& rank = at(r);
    const Layer& own = rank.layers[layer];
    require(own.set, "layer " + std::to_string(layer) + " has no weights yet");
    RankParams& to = p.rank[r];
    to.layer = own.weights;
    if (p.kind == LaunchKind::kEntry) {
        to.layer = {};
        to.layer.ffn_alpha = entry_gates_.as<float>();
        to.layer.ffn_beta = entry_gates_.as<float>() + shape_.hidden;
    }
    p.global_attention = own.global_attention;
    p.bf16_experts = own.bf16_experts;
    const bool projects = next < shape_.layers && rank.layers[next].set;
    to.next = projects ? rank.layers[next].own : NextWeights{nullptr, rank.final_norm};
    p.next_global_attention = projects && rank.layers[next].global_attention;
    require(to.next.norm != nullptr, "the head has no weights yet");
    const std::uint32_t feature = p.kind == LaunchKind::kEntry ? kNoFeature : feature_behind(layer);
    to.residual = residual_of(r);
    to.next_residual = feature == kNoFeature ? rank.residual[parity_ ^ 1u].as<float>() : draft_->features(r, feature);
    to.middle_residual = rank.middle.as<float>();
    to.q = rank.q[parity_].as<std::uint16_t>();
    to.gate = rank.gate[parity_].as<std::uint16_t>();
    to.next_q = rank.q[parity_ ^ 1u].as<std::uint16_t>();
    to.next_gate = rank.gate[parity_ ^ 1u].as<std::uint16_t>();
    to.k = rank.k[layer].as<std::uint16_t>();
    to.v = rank.v[layer].as<std::uint16_t>();
    to.next_k = projects ? rank.k[next].as<std::uint16_t>() : nullptr;
    to.next_v = projects ? rank.v[next].as<std::uint16_t>() : nullptr;
    to.exchange = rank.exchange[parity_].as<char>();
    to.idle_exchange = rank.exchange[parity_ ^ 1u].as<char>();
    for (std::uint32_t peer = 0; peer < shape_.ranks; ++peer) {
        to.peers[peer] = exchange_of(peer);
        to.places[peer] = options_.loopback ? peer : options_.first_rank + r;
    }
}

void MuseDevice::synchronize() {
    check(cudaStreamSynchronize(stream_), "running the launches");
    if (host_report_->claimed == 0) return;
    abi::WaitReport report = *host_report_;
    if (report.rank >= step::kReportedRank) {
        report.rank -= step::kReportedRank;
        report.site += std::uint32_t{abi::MuseHopper::kNumJobs} + abi::MuseDraft::kNumJobs;
    } else if (report.rank >= draft::kReportedRank) {
        report.rank -= draft::kReportedRank;
        report.site += abi::MuseHopper::kNumJobs;
    }
    *host_report_ = {};
    failed_ = !is_whole();
    if (!failed_) reset_exchange();
    throw WaitTimedOut(report);
}

void MuseDevice::reset() {
    check(cudaStreamSynchronize(stream_), "running the launches");
    *host_report_ = {};
    // A process that was refused a launch has made fewer of them.
    set_variant(0);
    failed_ = false;
    reset_exchange();
}

void MuseDevice::reset_exchange() {
    fill_bytes(abort_.as<char>(), 0, abort_.bytes(), "clearing the abort flag");
    for (const auto& rank : all_) {
        for (const Buffer& copy : rank->exchange) {
            fill_bytes(copy.as<char>(), 0xFF, exchange_.ones_bytes(), "making the exchange empty");
            fill_bytes(copy.as<char>() + exchange_.ones_bytes(), 0, exchange_.bytes - exchange_.ones_bytes(),
                       "making the exchange empty");
        }
    }
    if (draft_ != nullptr) draft_->reset_exchange();
    if (step_ != nullptr) step_->reset();
    check(cudaDeviceSynchronize(), "making the exchange empty");
}

void MuseDevice::poison() {
    reset_exchange();
    if (draft_ != nullptr) draft_->poison();
    feature_ = kNoFeature;
    for (const auto& rank : all_) {
        const std::uint32_t next = parity_ ^ 1u;
        for (const Buffer* buffer :
             {&rank->residual[next], &rank->q[next], &rank->gate[next], &rank->middle, &rank->partial, &rank->logits}) {
            fill_bytes(buffer->as<char>(), 0xA5, buffer->bytes(), "poisoning");
        }
    }
}

KernelFit MuseDevice::fit(LayerBuild build) const {
    KernelFit fit{};
    check(fit_layer(build, fit), "looking at the layer kernel");
    return fit;
}

}  // namespace musetrace::megakernel
