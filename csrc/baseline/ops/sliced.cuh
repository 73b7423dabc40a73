// qkv with gate, and lm_head: cut along K between the blocks, fp32 parts [slice][token][row].
#pragma once

#include "baseline/ops/dense.cuh"

namespace musetrace::baseline::ops {

struct SlicedProduct {
    std::uint32_t site;
    const char* matrix;
    megakernel::DenseShare share;
    std::uint32_t slices;
    std::uint32_t rows;  // from one token to the next in the result
    std::uint64_t result;
};

template <class Shared>
__device__ __forceinline__ void sliced(DenseWarp<Shared>& w, const SlicedProduct& product) {
    const std::uint32_t hidden = w.params.shape.hidden, bytes = x_bytes(hidden / product.slices);
    const megakernel::DenseShare& share = product.share;
    if (w.loads()) {
        const TileStages stages(product.matrix, hidden, share.tiles, share.slice, product.slices);
        load_dense(w, product.site, share.tiles.size() * stages.per_slice, stages,
                   w.params.scratch + w.params.at.x + std::size_t{share.slice} * bytes, bytes);
        return;
    }
    wait_for_x(w, product.site);
    float* to = scratch<float>(w.params, product.result) +
                (std::size_t{share.slice} * kTokens + w.token()) * product.rows + 2 * w.pair();
    multiply_tiles(w, product.site, hidden, product.slices, share.tiles,
                   [&](std::uint32_t tile, std::uint32_t tiles, float2 sums) {
                       if (w.pair() / 8 < tiles) *reinterpret_cast<float2*>(to + tile * kTileRows) = sums;
                   });
}

}  // namespace musetrace::baseline::ops
