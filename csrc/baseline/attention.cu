// Attention, and the merge of its splits.
#include "baseline/ops/attention.cuh"
#include "baseline/ops/merge_heads.cuh"

namespace musetrace::baseline {
namespace {

constexpr std::uint32_t kAttentionThreads = ops::kAttentionWarps * kLanes;
constexpr std::uint32_t kMergeWarps = 2;

template <bool kBatch>
__global__ void __launch_bounds__(kAttentionThreads, 1) chain_attention(const __grid_constant__ ChainParams params) {
    __shared__ alignas(16) ops::AttentionParts parts;
    let_next_kernel_start();
    ops::attend<kBatch>(params, parts);
}

__global__ void __launch_bounds__(kMergeWarps* kLanes) chain_merge_heads(const __grid_constant__ ChainParams params) {
    let_next_kernel_start();
    ops::merge_head(params, blockIdx.x * kMergeWarps + threadIdx.x / kLanes);
}

}  // namespace

cudaError_t launch_attention(const ChainParams& params, Launch launch) {
    const std::uint32_t items = params.shape.q_heads * params.plan.splits;
    if (params.rows != nullptr) {
        return launch_kernel(chain_attention<true>, {dim3(items, params.sequences), kAttentionThreads}, launch, params);
    }
    return launch_kernel(chain_attention<false>, {dim3(items), kAttentionThreads}, launch, params);
}

// A multiple of 16 rows, so of the warps of a block.
cudaError_t launch_merge_heads(const ChainParams& params, Launch launch) {
    return launch_kernel(chain_merge_heads, {dim3(params.shape.q_heads * kTokens / kMergeWarps), kMergeWarps * kLanes},
                         launch, params);
}

}  // namespace musetrace::baseline
