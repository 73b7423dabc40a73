// The grouped products of the experts.
#include "baseline/ops/experts.cuh"

namespace musetrace::baseline {
namespace {

using ops::ExpertShared;
using ops::kExpertThreads;

// The whole block; then __syncthreads(). From L2: the other SMs' L1 may be older.
__device__ __forceinline__ void read_list(const ChainParams& params, ExpertShared& shared) {
    const WorkList& list = *scratch<WorkList>(params, params.at.list);
    const auto copy = [](auto& to, const auto& from) {
        for (std::uint32_t i = threadIdx.x; i < sizeof(from) / 4; i += kExpertThreads) {
            reinterpret_cast<std::uint32_t*>(&to)[i] = __ldcg(reinterpret_cast<const std::uint32_t*>(&from) + i);
        }
    };
    copy(shared.item_count, list.item_count);
    copy(shared.items, list.items);
    copy(shared.pairs, list.pairs);
}

// The first product lets the next kernels start only behind its wait, so that when the second one begins, whatever
// still runs, the list is there: the second loads weights before its own wait.
template <bool kSecond, bool kBf16>
__global__ void __launch_bounds__(kExpertThreads, 1) chain_experts(const __grid_constant__ ChainParams params) {
    extern __shared__ __align__(128) char bytes[];
    auto& shared = *reinterpret_cast<ExpertShared*>(bytes);
    if (threadIdx.x == 0) shared.init();
    const std::uint32_t warp = __shfl_sync(kAllLanes, threadIdx.x / kLanes, 0);
    if (sync::lane_id() == 0) shared.waiters[warp] = waiter_of(params, warp);
    if constexpr (!kSecond) wait_for_kernels_before();
    let_next_kernel_start();
    read_list(params, shared);
    __syncthreads();
    const ops::Experts<kSecond, kBf16> experts{params, shared, shared.waiters[warp], sync::lane_id()};
    if (warp == 0) return experts.load_weights();
    wait_for_kernels_before();
    if (warp == 1) return experts.load_rows();
    if (warp == 2) return experts.finish();
    experts.multiply(warp - ops::kSingleWarps);
}

template <bool kSecond>
cudaError_t launch_experts(const ChainParams& params, Launch launch) {
    const auto kernel = params.bf16_experts ? chain_experts<kSecond, true> : chain_experts<kSecond, false>;
    return launch_kernel(kernel, {dim3(params.shape.blocks), kExpertThreads, sizeof(ExpertShared)}, launch, params);
}

}  // namespace

cudaError_t launch_gemm1(const ChainParams& params, Launch launch) { return launch_experts<false>(params, launch); }
cudaError_t launch_gemm2(const ChainParams& params, Launch launch) { return launch_experts<true>(params, launch); }

}  // namespace musetrace::baseline
