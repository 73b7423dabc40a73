// Kernels over rows of tokens: the two stops and the first norm, and what comes behind a product that was cut along K.
#include "baseline/ops/finish_logits.cuh"
#include "baseline/ops/finish_qkv.cuh"
#include "baseline/ops/stop.cuh"

namespace musetrace::baseline {
namespace {

constexpr std::uint32_t kFinishWarps = 8;
constexpr std::uint32_t kLogitThreads = 256;
constexpr std::uint32_t kThreadLogits = 4;

template <bool kBranch>
__global__ void __launch_bounds__(ops::kStopThreads)
    chain_stop(const __grid_constant__ ChainParams params, const __grid_constant__ ops::StopData data) {
    __shared__ ops::StopShared shared;
    let_next_kernel_start();
    ops::stop<kBranch>(params, data, shared);
}

template <bool kBatch>
__global__ void __launch_bounds__(kFinishWarps* kLanes) chain_finish_qkv(const __grid_constant__ ChainParams params) {
    let_next_kernel_start();
    ops::finish_qkv_row<kBatch>(params, blockIdx.x * kFinishWarps + threadIdx.x / kLanes);
}

__global__ void __launch_bounds__(kLogitThreads) chain_finish_logits(const __grid_constant__ ChainParams params) {
    let_next_kernel_start();
    ops::finish_logits(params, blockIdx.y, (blockIdx.x * kLogitThreads + threadIdx.x) * kThreadLogits);
}

template <bool kBranch>
cudaError_t launch_stop(const ChainParams& params, const ops::StopData& data, Launch launch) {
    const std::uint32_t cluster = ops::stop_cluster(params.shape);
    return launch_kernel(chain_stop<kBranch>, {dim3(cluster, kTokens), ops::kStopThreads, 0, cluster}, launch, params,
                         data);
}

}  // namespace

cudaError_t launch_stop1(const ChainParams& params, Launch launch) {
    const megakernel::LayerWeights& layer = params.layer;
    auto* middle = reinterpret_cast<float*>(params.scratch + params.at.middle);
    return launch_stop<true>(
        params, {nullptr, layer.attn_alpha, layer.attn_beta, params.residual, middle, layer.pre_ffn_norm}, launch);
}

cudaError_t launch_stop5(const ChainParams& params, Launch launch) {
    const megakernel::LayerWeights& layer = params.layer;
    const auto* middle = reinterpret_cast<const float*>(params.scratch + params.at.middle);
    return launch_stop<true>(
        params, {layer.post_ffn_norm, layer.ffn_alpha, layer.ffn_beta, middle, params.next_residual, params.next.norm},
        launch);
}

cudaError_t launch_entry_norm(const ChainParams& params, Launch launch) {
    return launch_stop<false>(params, {nullptr, nullptr, nullptr, params.residual, nullptr, params.next.norm}, launch);
}

// 16 rows for each head, so a multiple of the warps of a block.
cudaError_t launch_finish_qkv(const ChainParams& params, Launch launch) {
    return launch_kernel(params.rows != nullptr ? chain_finish_qkv<true> : chain_finish_qkv<false>,
                         {dim3(params.shape.qkv_units() * kTokens / kFinishWarps), kFinishWarps * kLanes}, launch,
                         params);
}

cudaError_t launch_finish_logits(const ChainParams& params, Launch launch) {
    const std::uint32_t blocks = megakernel::ceil_div(params.shape.vocab, kLogitThreads * kThreadLogits);
    return launch_kernel(chain_finish_logits, {dim3(blocks, kTokens), kLogitThreads}, launch, params);
}

}  // namespace musetrace::baseline
