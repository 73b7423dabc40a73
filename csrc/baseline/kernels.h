// One function for each kernel of the chain, in the order of the layer.
#pragma once

#include "baseline/chain.h"

namespace musetrace::baseline {

struct Launch {
    ChainMode mode;
    cudaStream_t stream;
};

// attention.cu
cudaError_t launch_attention(const ChainParams& params, Launch launch);
cudaError_t launch_merge_heads(const ChainParams& params, Launch launch);

// dense.cu
cudaError_t launch_o_proj(const ChainParams& params, Launch launch);
cudaError_t launch_pooler(const ChainParams& params, Launch launch);
cudaError_t launch_unpooler(const ChainParams& params, Launch launch);
cudaError_t launch_qkv(const ChainParams& params, Launch launch);
cudaError_t launch_lm_head(const ChainParams& params, Launch launch);

// rows.cu
cudaError_t launch_stop1(const ChainParams& params, Launch launch);
cudaError_t launch_stop5(const ChainParams& params, Launch launch);
cudaError_t launch_entry_norm(const ChainParams& params, Launch launch);
cudaError_t launch_finish_qkv(const ChainParams& params, Launch launch);
cudaError_t launch_finish_logits(const ChainParams& params, Launch launch);

// moe.cu
cudaError_t launch_gather_pooled(const ChainParams& params, Launch launch);
cudaError_t launch_route(const ChainParams& params, Launch launch);
cudaError_t launch_gather_features(const ChainParams& params, Launch launch);
cudaError_t launch_gather_squares(const ChainParams& params, Launch launch);
cudaError_t launch_combine(const ChainParams& params, Launch launch);

// experts.cu
cudaError_t launch_gemm1(const ChainParams& params, Launch launch);
cudaError_t launch_gemm2(const ChainParams& params, Launch launch);

}  // namespace musetrace::baseline
