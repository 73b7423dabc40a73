#include "baseline/chain.h"

#include "baseline/kernels.h"

namespace musetrace::baseline {
namespace {

using KernelLaunch = cudaError_t (*)(const ChainParams&, Launch);

// Until one fails.
template <std::size_t kCount>
cudaError_t launch_all(const KernelLaunch (&kernels)[kCount], const ChainParams& params, Launch launch) {
    for (const KernelLaunch kernel : kernels) {
        if (const cudaError_t error = kernel(params, launch); error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t launch_projection(const ChainParams& params, Launch launch) {
    return launch_all({launch_qkv, launch_finish_qkv}, params, launch);
}

// With one rank a gather would copy a buffer to itself.
cudaError_t launch_experts(const ChainParams& params, Launch launch) {
    if (params.shape.ranks == 1) return launch_all({launch_gemm1, launch_gemm2}, params, launch);
    return launch_all({launch_gemm1, launch_gather_features, launch_gemm2, launch_gather_squares}, params, launch);
}

}  // namespace

cudaError_t launch_layer_chain(const ChainParams& params, ChainMode mode, cudaStream_t stream) {
    const Launch launch{mode, stream};
    const cudaError_t error =
        launch_all({launch_attention, launch_merge_heads, launch_o_proj, launch_stop1, launch_pooler,
                    launch_gather_pooled, launch_route, launch_experts, launch_combine, launch_unpooler, launch_stop5},
                   params, launch);
    if (error != cudaSuccess || params.next.qkvg == nullptr) return error;
    return launch_projection(params, launch);
}

cudaError_t launch_entry_chain(const ChainParams& params, ChainMode mode, cudaStream_t stream) {
    return launch_all({launch_entry_norm, launch_projection}, params, {mode, stream});
}

cudaError_t launch_head_chain(const ChainParams& params, ChainMode mode, cudaStream_t stream) {
    return launch_all({launch_lm_head, launch_finish_logits}, params, {mode, stream});
}

}  // namespace musetrace::baseline
