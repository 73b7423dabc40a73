// Dense products.
//
// Stages of the rings: out-projection and pooler have all their weights on the SM before their input is there (128 and
// 72 KB at full size). Unpooler and qkv fit one SM together, so both load under the experts' tail and the stops.
#include "baseline/ops/own_columns.cuh"
#include "baseline/ops/pooler.cuh"
#include "baseline/ops/sliced.cuh"

namespace musetrace::baseline {
namespace {

using megakernel::MuseHopper;
using ops::kDenseThreads;
using OProjShared = ops::DenseShared<8>;
using PoolerShared = ops::DenseShared<8>;
using UnpoolerShared = ops::DenseShared<4>;
using QkvShared = ops::DenseShared<5>;
using HeadShared = ops::DenseShared<8>;

__global__ void __launch_bounds__(kDenseThreads, 1) chain_o_proj(const __grid_constant__ ChainParams params) {
    extern __shared__ __align__(128) char bytes[];
    auto w = ops::begin_dense<OProjShared>(params, bytes);
    ops::own_columns(w, MuseHopper::o_proj_compute, params.layer.o, params.shape.head_columns(), params.at.heads);
}

__global__ void __launch_bounds__(kDenseThreads, 1) chain_pooler(const __grid_constant__ ChainParams params) {
    extern __shared__ __align__(128) char bytes[];
    auto w = ops::begin_dense<PoolerShared>(params, bytes);
    ops::pool(w);
}

__global__ void __launch_bounds__(kDenseThreads, 1) chain_unpooler(const __grid_constant__ ChainParams params) {
    extern __shared__ __align__(128) char bytes[];
    auto w = ops::begin_dense<UnpoolerShared>(params, bytes);
    ops::own_columns(w, MuseHopper::unpooler_compute, params.layer.unpooler, params.shape.pooled_rows(),
                     params.at.combined);
}

__global__ void __launch_bounds__(kDenseThreads, 1) chain_qkv(const __grid_constant__ ChainParams params) {
    extern __shared__ __align__(128) char bytes[];
    auto w = ops::begin_dense<QkvShared>(params, bytes);
    const Shape& s = params.shape;
    ops::sliced(w, {MuseHopper::qkv_compute, params.next.qkvg, megakernel::qkv_share(s, params.plan, blockIdx.x),
                    params.plan.qkv_slices, s.qkv_units() * s.head_dim, params.at.qkv});
}

__global__ void __launch_bounds__(kDenseThreads, 1) chain_lm_head(const __grid_constant__ ChainParams params) {
    extern __shared__ __align__(128) char bytes[];
    auto w = ops::begin_dense<HeadShared>(params, bytes);
    const Shape& s = params.shape;
    ops::sliced(w, {MuseHopper::lm_head_compute, params.lm_head, megakernel::head_share(s, params.plan, blockIdx.x),
                    params.plan.head_slices, padded_vocab(s), params.at.head});
}

// `k` of the operand that a block holds.
template <class Shared>
cudaError_t launch_dense(void (*kernel)(ChainParams), const ChainParams& params, std::uint32_t blocks, std::uint32_t k,
                         Launch launch) {
    return launch_kernel(kernel, {dim3(blocks), kDenseThreads, sizeof(Shared) + ops::x_bytes(k)}, launch, params);
}

}  // namespace

cudaError_t launch_o_proj(const ChainParams& params, Launch launch) {
    return launch_dense<OProjShared>(chain_o_proj, params, params.plan.dense_blocks, params.shape.head_columns(),
                                     launch);
}

cudaError_t launch_pooler(const ChainParams& params, Launch launch) {
    return launch_dense<PoolerShared>(chain_pooler, params, params.plan.dense_blocks,
                                      params.shape.hidden / params.plan.pool_slices, launch);
}

cudaError_t launch_unpooler(const ChainParams& params, Launch launch) {
    return launch_dense<UnpoolerShared>(chain_unpooler, params, params.plan.dense_blocks, params.shape.pooled_rows(),
                                        launch);
}

cudaError_t launch_qkv(const ChainParams& params, Launch launch) {
    return launch_dense<QkvShared>(chain_qkv, params, params.plan.dense_blocks,
                                   params.shape.hidden / params.plan.qkv_slices, launch);
}

cudaError_t launch_lm_head(const ChainParams& params, Launch launch) {
    return launch_dense<HeadShared>(chain_lm_head, params, params.shape.blocks,
                                    params.shape.hidden / params.plan.head_slices, launch);
}

}  // namespace musetrace::baseline
