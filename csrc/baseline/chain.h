// The baseline chain: a decoder layer as a chain of ordinary kernels (chain_params.h).
#pragma once

#include <cuda_runtime_api.h>

#include "baseline/chain_params.h"

namespace musetrace::baseline {

enum class ChainMode {
    kPlain,         // each kernel begins when the one before has ended
    kProgrammatic,  // each kernel begins early and loads weights until the one before has ended
};

// All of these queue kernels on the stream and do not wait; also while the stream is being captured.

// From attention to the next layer's projection and KV write; with next.qkvg null, to the norm of the residual stream.
cudaError_t launch_layer_chain(const ChainParams& params, ChainMode mode, cudaStream_t stream);
// Norm and first projection of the residual stream: `next` is the first layer. The residual stream is only read.
cudaError_t launch_entry_chain(const ChainParams& params, ChainMode mode, cudaStream_t stream);
// Logits of the normed residual stream that a layer without next.qkvg left in the scratch.
cudaError_t launch_head_chain(const ChainParams& params, ChainMode mode, cudaStream_t stream);

// Kernels of a layer that has a next one.
constexpr std::uint32_t kernels_per_layer(const Shape& s) { return s.ranks > 1 ? 17 : 15; }
inline constexpr std::uint32_t kHeadKernels = 2;

}  // namespace musetrace::baseline
