#include "megakernel/step/step_device.h"

#include "megakernel/peer_memory.h"

namespace musetrace::megakernel::step {

StepDevice::StepDevice(const Target& target, const std::vector<std::vector<KvRows>>& caches)
    : target_(target), parts_(exported_bytes(kPartsBytes)), turn_(sizeof(std::uint32_t)) {
    for (const std::vector<KvRows>& of_rank : caches) {
        const std::size_t bytes = of_rank.size() * sizeof(KvRows);
        caches_.emplace_back(bytes);
        write_bytes(caches_.back().as<char>(), of_rank.data(), bytes, "telling the device where its caches are");
    }
    KernelFit fit{};
    for (const LayerBuild build : kLayerBuilds) check(fit_step(build, fit), "loading the kernel between passes");
    reset();
}

void StepDevice::launch(StepKind kind, LayerBuild build, const std::vector<RankMemory>& ranks, char* stamps,
                        std::uint32_t epoch, const StampRow& stamp_row) {
    StepParams p{};
    p.shape = target_.shape;
    p.ranks = static_cast<std::uint32_t>(ranks.size());
    p.first_rank = target_.first_rank;
    p.sharing = target_.loopback ? 1 : target_.shape.ranks;
    p.kind = kind;
    p.programmatic = target_.programmatic;
    p.budget_ns = target_.budget_ns;
    p.delay_seed = delay_seed_ ^ target_.first_rank << 16;
    p.state = target_.state;
    p.embedding = ranks.at(0).embedding;
    p.parts[p.gpus++] = parts_.as<std::uint64_t>();
    for (char* peer : peers_) p.parts[p.gpus++] = reinterpret_cast<std::uint64_t*>(peer);
    p.turn = turn_.as<std::uint32_t>();
    p.report = target_.report;
    p.abort = target_.abort;
    p.stamps = stamps;
    p.epoch = epoch;
    p.stamp_row = stamp_row;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        p.rank[r].logits = ranks[r].logits;
        p.rank[r].residual = ranks[r].residual;
        p.rank[r].kv = caches_.at(r).as<KvRows>();
    }
    check(launch_step(build, p, target_.stream), "launching the kernel between passes");
}

void StepDevice::reset() {
    static_assert(kEmptyWord == ~std::uint64_t{0});
    fill_bytes(parts_.as<char>(), 0xFF, kPartsBytes, "making the parts of the logits empty");
    fill_bytes(turn_.as<char>(), 0, turn_.bytes(), "clearing the turn of the parts");
}

}  // namespace musetrace::megakernel::step
