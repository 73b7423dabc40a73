#include "megakernel/step/step_device.h"

namespace musetrace::megakernel::step {

StepDevice::StepDevice(const Shape& shape, const std::vector<std::vector<KvRows>>& caches, StepState* state,
                       bool programmatic, cudaStream_t stream)
    : shape_(shape),
      state_(state),
      programmatic_(programmatic),
      stream_(stream),
      parts_(sizeof(Part) * kTokens * kParts),
      arrived_(sizeof(std::uint32_t)) {
    for (const std::vector<KvRows>& of_rank : caches) {
        const std::size_t bytes = of_rank.size() * sizeof(KvRows);
        caches_.emplace_back(bytes);
        check(cudaMemcpy(caches_.back().as<char>(), of_rank.data(), bytes, cudaMemcpyHostToDevice),
              "telling the device where its caches are");
    }
    KernelFit fit{};
    for (const LayerBuild build : kLayerBuilds) check(fit_step(build, fit), "loading the kernel between passes");
}

void StepDevice::launch(StepKind kind, LayerBuild build, const std::vector<RankMemory>& ranks, char* stamps,
                        std::uint32_t epoch, const StampRow& stamp_row) {
    StepParams p{};
    p.shape = shape_;
    p.ranks = static_cast<std::uint32_t>(ranks.size());
    p.kind = kind;
    p.programmatic = programmatic_;
    p.state = state_;
    p.embedding = ranks.at(0).embedding;
    p.parts = parts_.as<Part>();
    p.arrived = arrived_.as<std::uint32_t>();
    p.stamps = stamps;
    p.epoch = epoch;
    p.stamp_row = stamp_row;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        p.rank[r].logits = ranks[r].logits;
        p.rank[r].residual = ranks[r].residual;
        p.rank[r].kv = caches_.at(r).as<KvRows>();
    }
    check(launch_step(build, p, stream_), "launching the kernel between passes");
}

void StepDevice::reset() { check(cudaMemset(arrived_.as<char>(), 0, arrived_.bytes()), "clearing a counter"); }

}  // namespace musetrace::megakernel::step
