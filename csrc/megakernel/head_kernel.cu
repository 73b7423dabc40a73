#include "megakernel/head_entry.cuh"

namespace musetrace::megakernel {
namespace {

// Sum of the slices in their order, multiplier, soft cap.
__global__ void sum_head(const __grid_constant__ HeadParams params) {
    const Shape& s = params.shape;
    const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x, rows = padded_vocab(s);
    const auto& rank = params.rank[blockIdx.y];
    if (index >= kTokens * s.vocab) return;
    const std::uint32_t token = index / s.vocab, row = index % s.vocab;
    float logit = 0.0f;
    for (std::uint32_t slice = 0; slice < params.plan.head_slices; ++slice) {
        logit += rank.partial[(std::size_t{slice} * kTokens + token) * rows + row];
    }
    rank.logits[index] = tanhf(logit * s.output_multiplier / s.softcap) * s.softcap;
}

HeadKernel head_kernel(LayerBuild build) {
    switch (build) {
        case LayerBuild::kStore:
            return muse_head<LayerBuild::kStore>;
        case LayerBuild::kRegister:
            return muse_head<LayerBuild::kRegister>;
        case LayerBuild::kAbsent:
            return absent_head_kernel();
        default:
            return muse_head<LayerBuild::kOff>;
    }
}

}  // namespace

int fit_head(LayerBuild build, KernelFit& fit) {
    return fit_kernel(reinterpret_cast<const void*>(head_kernel(build)), sizeof(SharedMemory), fit);
}

int launch_head(LayerBuild build, const HeadParams& params, cudaStream_t stream) {
    return launch_kernel(reinterpret_cast<const void*>(head_kernel(build)), params.ranks * params.shape.blocks,
                         sizeof(SharedMemory), const_cast<HeadParams*>(&params), params.programmatic, stream);
}

// An ordinary launch: what is behind it begins when all in front of it has ended, whose reads no cache keeps for it.
int launch_head_sum(const HeadParams& params, cudaStream_t stream) {
    constexpr std::uint32_t kThreads = 256;
    sum_head<<<dim3(ceil_div(kTokens * params.shape.vocab, kThreads), params.ranks), kThreads, 0, stream>>>(params);
    return cudaGetLastError();
}

}  // namespace musetrace::megakernel
