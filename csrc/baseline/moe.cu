// The small kernels around the experts: gathers, norm and routing, combine.
#include "baseline/ops/combine.cuh"
#include "baseline/ops/gather.cuh"
#include "baseline/ops/route.cuh"

namespace musetrace::baseline {
namespace {

constexpr std::uint32_t kGatherThreads = 128;
constexpr std::uint32_t kCombineThreads = ops::kCombineWarps * kLanes;

// The pooled pairs are a multiple of a block's threads, so a block has either those or logits.
__global__ void __launch_bounds__(kGatherThreads) chain_gather_pooled(const __grid_constant__ ChainParams params) {
    let_next_kernel_start();
    wait_for_kernels_before();
    const std::uint32_t item = blockIdx.x * kGatherThreads + threadIdx.x, pairs = ops::pooled_pairs(params.shape);
    if (item < pairs) {
        ops::gather_pooled(params, item);
    } else {
        ops::gather_logits(params, item - pairs);
    }
}

// Blocks 0 to 15: a token's norm. Block 16: the routing of all tokens.
__global__ void __launch_bounds__(ops::kRouteThreads) chain_route(const __grid_constant__ ChainParams params) {
    __shared__ float parts[ops::kRouteWarps];
    __shared__ ops::RouteShared shared;
    let_next_kernel_start();
    if (blockIdx.x < kTokens) {
        ops::normalize_row(params, blockIdx.x, parts);
    } else {
        ops::route(params, shared);
    }
}

__global__ void __launch_bounds__(kGatherThreads) chain_gather_features(const __grid_constant__ ChainParams params) {
    let_next_kernel_start();
    wait_for_kernels_before();
    ops::gather_features(params, blockIdx.x * kGatherThreads + threadIdx.x);
}

__global__ void __launch_bounds__(kGatherThreads) chain_gather_squares(const __grid_constant__ ChainParams params) {
    let_next_kernel_start();
    wait_for_kernels_before();
    ops::gather_squares(params, blockIdx.x * kGatherThreads + threadIdx.x);
}

__global__ void __launch_bounds__(kCombineThreads) chain_combine(const __grid_constant__ ChainParams params) {
    __shared__ ops::CombineShared shared;
    let_next_kernel_start();
    ops::combine(params, shared);
}

constexpr dim3 gather_blocks(std::uint32_t items) { return dim3(megakernel::ceil_div(items, kGatherThreads)); }

}  // namespace

cudaError_t launch_gather_pooled(const ChainParams& params, Launch launch) {
    const Shape& s = params.shape;
    const std::uint32_t items = kTokens * (s.pooled_rows() / 2 + s.router_rows());
    return launch_kernel(chain_gather_pooled, {gather_blocks(items), kGatherThreads}, launch, params);
}

cudaError_t launch_route(const ChainParams& params, Launch launch) {
    return launch_kernel(chain_route, {dim3(kTokens + 1), ops::kRouteThreads}, launch, params);
}

cudaError_t launch_gather_features(const ChainParams& params, Launch launch) {
    const Shape& s = params.shape;
    const std::uint32_t words = s.pairs() * s.features() * 2 / kLoadBytes;
    return launch_kernel(chain_gather_features, {gather_blocks(words), kGatherThreads}, launch, params);
}

cudaError_t launch_gather_squares(const ChainParams& params, Launch launch) {
    const Shape& s = params.shape;
    const std::uint32_t sums = s.pairs() * megakernel::ExpertTiles(s).gemm2;
    return launch_kernel(chain_gather_squares, {gather_blocks(sums), kGatherThreads}, launch, params);
}

cudaError_t launch_combine(const ChainParams& params, Launch launch) {
    const std::uint32_t parts = params.shape.pooled_rows() / megakernel::kTileColumns;
    return launch_kernel(chain_combine, {dim3(kTokens * parts), kCombineThreads}, launch, params);
}

}  // namespace musetrace::baseline
