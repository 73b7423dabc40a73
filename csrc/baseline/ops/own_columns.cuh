// Out-projection and unpooler: cut along K between the ranks, so the rank's result is a part of all columns, rounded to
// bf16.
#pragma once

#include "baseline/ops/dense.cuh"

namespace musetrace::baseline::ops {

template <class Shared>
__device__ __forceinline__ void own_columns(DenseWarp<Shared>& w, std::uint32_t site, const char* matrix,
                                            std::uint32_t k, std::uint64_t x) {
    const Share units = megakernel::own_units(w.params.shape, w.params.plan, blockIdx.x);
    const Share tiles{2 * units.begin, 2 * units.end};
    if (w.loads()) {
        const TileStages stages(matrix, k, tiles, 0, 1);
        load_dense(w, site, tiles.size() * stages.stages, stages, w.params.scratch + x, x_bytes(k));
        return;
    }
    wait_for_x(w, site);
    auto* partial = scratch<std::uint32_t>(w.params, w.params.at.partial) + w.group_thread();
    multiply_tiles(w, site, k, 1, tiles, [&](std::uint32_t tile, std::uint32_t, float2 sums) {
        partial[std::size_t{tile / 2} * kGroupThreads] = pack_bf16(sums.x, sums.y);
    });
}

}  // namespace musetrace::baseline::ops
