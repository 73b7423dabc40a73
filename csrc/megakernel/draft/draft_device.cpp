#include "megakernel/draft/draft_device.h"

#include <cstddef>
#include <string>

#include "megakernel/peer_memory.h"

namespace musetrace::megakernel::draft {
namespace {

DraftSizes checked(const DraftSizes& s, const Target& target) {
    const char* wrong = unsupported(s);
    require(wrong == nullptr, wrong == nullptr ? "" : wrong);
    KernelFit fit{};
    for (const LayerBuild build : kLayerBuilds) check(fit_draft(build, fit), "loading the draft kernel");
    require(static_cast<int>(target.ranks * s.blocks) <= fit.blocks,
            std::to_string(target.ranks * s.blocks) + " blocks do not fit this GPU, which holds " +
                std::to_string(fit.blocks) + " of the draft at once; all of them must run together");
    return s;
}

}  // namespace

DraftDevice::Rank::Rank(const DraftSizes& s, const DraftExchange& e)
    : layers(s.layers),
      exchange{Buffer(exported_bytes(e.bytes)), Buffer(exported_bytes(e.bytes))},
      q{Buffer(std::size_t{kTokens} * s.head_columns() * 2), Buffer(std::size_t{kTokens} * s.head_columns() * 2)},
      residual(std::size_t{kTokens} * s.hidden * 4),
      table(sizeof(ContextTable)) {
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        k.emplace_back(std::size_t{s.kv_heads} * s.capacity * kHeadDim * 2);
        v.emplace_back(std::size_t{s.kv_heads} * s.capacity * kHeadDim * 2);
    }
    for (std::uint32_t i = 0; i < s.feature_layers; ++i) features.emplace_back(std::size_t{kTokens} * s.hidden * 4);
}

DraftDevice::DraftDevice(const DraftSizes& shape, std::uint32_t mask_token, std::uint32_t in_flight_bytes,
                         const Target& target)
    : shape_(checked(shape, target)),
      mask_token_(mask_token),
      in_flight_bytes_(in_flight_bytes),
      target_(target),
      plan_(make_plan(shape)),
      exchange_(make_exchange(shape, plan_)),
      shares_(sizeof(DraftShares) * shape.blocks) {
    for (std::uint32_t r = 0; r < target.ranks; ++r) all_.push_back(std::make_unique<Rank>(shape_, exchange_));
    std::vector<DraftShares> shares;
    for (std::uint32_t block = 0; block < shape_.blocks; ++block) {
        shares.push_back(draft_shares(shape_, plan_, block));
    }
    write_bytes(shares_.as<char>(), shares.data(), shares_.bytes(), "dealing the work");
    reset_exchange();
}

void DraftDevice::set_layer(std::uint32_t rank, std::uint32_t layer, const DraftLayerWeights& weights) {
    require(layer < shape_.layers, "the draft has no layer " + std::to_string(layer));
    Rank& to = at(rank);
    to.layers[layer] = weights;
    ContextTable table{};
    for (std::uint32_t i = 0; i < shape_.layers; ++i) {
        table.layers[i] = {to.layers[i].qkv, to.layers[i].k_norm, cache(rank, i)};
    }
    for (std::uint32_t i = 0; i < shape_.feature_layers; ++i) table.features[i] = to.features[i].as<float>();
    write_bytes(to.table.as<char>(), &table, sizeof table, "setting the draft's layers");
}

void DraftDevice::set_outer(std::uint32_t rank, const OuterWeights& weights) { at(rank).outer = weights; }

DraftCache DraftDevice::cache(std::uint32_t rank, std::uint32_t layer) const {
    const Rank& of = *all_.at(rank);
    return {of.k.at(layer).as<std::uint16_t>(), of.v.at(layer).as<std::uint16_t>()};
}

void DraftDevice::launch(DraftKind kind, std::uint32_t layer, LayerBuild build, char* stamps, std::uint32_t epoch,
                         const StampRow& stamp_row) {
    require(kind == DraftKind::kContext || layer < shape_.layers, "the draft has no layer " + std::to_string(layer));
    DraftParams p{};
    p.shape = shape_;
    p.ranks = target_.ranks;
    p.first_rank = target_.first_rank;
    p.plan = plan_;
    p.exchange = exchange_;
    p.kind = kind;
    p.programmatic = target_.programmatic;
    p.mask_token = mask_token_;
    p.in_flight_bytes = in_flight_bytes_;
    p.budget_ns = target_.budget_ns;
    p.delay_seed = delay_seed_ ^ target_.first_rank << 16;
    p.state = target_.state;
    p.shares = shares_.as<DraftShares>();
    p.rope = rope_;
    p.report = target_.report;
    p.abort = target_.abort;
    p.stamps = stamps;
    p.epoch = epoch;
    p.stamp_row = stamp_row;
    for (std::uint32_t r = 0; r < target_.ranks; ++r) set_rank_params(r, layer, p);
    check(launch_draft(build, p, target_.stream), "launching the draft kernel");
    parity_ ^= 1u;
}

void DraftDevice::set_rank_params(std::uint32_t r, std::uint32_t layer, DraftParams& p) {
    const bool context = p.kind == DraftKind::kContext;
    Rank& rank = at(r);
    const std::uint32_t next = context ? 0 : layer + 1;
    const bool projects = next < shape_.layers;
    const DraftLayerWeights own = context ? DraftLayerWeights{} : rank.layers[layer];
    const DraftLayerWeights behind = projects ? rank.layers[next] : DraftLayerWeights{};
    DraftRank& to = p.rank[r];
    to.first = context ? rank.outer.fc : own.o;
    to.gate_up = own.gate_up;
    to.down = own.down;
    to.qkv = behind.qkv;
    to.norm1 = context ? rank.outer.context_norm : own.mlp_norm;
    to.norm2 = projects ? behind.input_norm : rank.outer.norm;
    require(rope_ != nullptr && to.first != nullptr && to.norm2 != nullptr && rank.outer.norm != nullptr,
            "the draft has not all of its weights yet");
    to.q_norm = behind.q_norm;
    to.k_norm = behind.k_norm;
    to.embedding = rank.outer.embedding;
    to.context = rank.table.as<ContextTable>();
    to.residual = rank.residual.as<float>();
    to.q = rank.q[parity_].as<std::uint16_t>();
    to.next_q = rank.q[parity_ ^ 1u].as<std::uint16_t>();
    if (!context) to.cache = cache(r, layer);
    if (projects) to.next_cache = cache(r, next);
    to.exchange = rank.exchange[parity_].as<char>();
    to.idle_exchange = rank.exchange[parity_ ^ 1u].as<char>();
    for (std::uint32_t peer = 0; peer < shape_.ranks; ++peer) {
        to.peers[peer] = exchange_of(peer);
        to.places[peer] = target_.loopback ? peer : target_.first_rank + r;
    }
}

char* DraftDevice::exchange_of(std::uint32_t rank) const {
    if (target_.loopback) return exchange(0, parity_);
    const std::uint32_t here = rank - target_.first_rank;
    return here < target_.ranks ? exchange(here, parity_) : peers_.at(rank)[parity_];
}

KernelFit DraftDevice::fit(LayerBuild build) const {
    KernelFit fit{};
    check(fit_draft(build, fit), "looking at the draft kernel");
    return fit;
}

void DraftDevice::reset_exchange() {
    for (const auto& rank : all_) {
        for (const Buffer& copy : rank->exchange) {
            fill_bytes(copy.as<char>(), 0xFF, exchange_.ones_bytes(), "making the draft's exchange empty");
            fill_bytes(copy.as<char>() + exchange_.ones_bytes(), 0, exchange_.bytes - exchange_.ones_bytes(),
                       "making the draft's exchange empty");
        }
    }
}

void DraftDevice::leave_exchange() {
    for (const auto& rank : all_) {
        for (Buffer& copy : rank->exchange) copy.leave();
    }
}

void DraftDevice::poison() {
    reset_exchange();
    for (const auto& rank : all_) {
        for (const Buffer* buffer : {&rank->q[parity_ ^ 1u], &rank->residual}) {
            fill_bytes(buffer->as<char>(), 0xA5, buffer->bytes(), "poisoning");
        }
    }
}

}  // namespace musetrace::megakernel::draft
