// Which tiles of the experts a block has, in which order: the same for the loader, the input warps, the group and the
// sender.
#pragma once

#include "megakernel/block.cuh"

namespace musetrace::megakernel::ops {

struct Tile {
    bool second;  // of GEMM 2
    WorkItem item;
    std::uint32_t index;  // of the item's tiles: which 64 rows
};

// The block's tiles, all of GEMM 1 and then all of GEMM 2.
template <class W>
struct TileWalk {
    const W& w;
    std::uint32_t next;

    __device__ __forceinline__ explicit TileWalk(const W& w) : w(w), next(w.block()) {}

    __device__ __forceinline__ bool has(bool second) const { return next < end(second); }
    __device__ __forceinline__ Tile take(bool second) {
        const ExpertTiles& tiles = w.shared.shares.expert_tiles;
        const std::uint32_t number = second ? next - end(false) : next;
        const std::uint32_t of_item = second ? tiles.gemm2 : tiles.gemm1;
        next += w.shape().blocks;
        // A power of two (unsupported() in geometry.h): a division would stand before every tile.
        return {second, w.shared.items[number >> (__ffs(of_item) - 1)], number & (of_item - 1)};
    }

  private:
    __device__ __forceinline__ std::uint32_t end(bool second) const {
        const ExpertTiles& tiles = w.shared.shares.expert_tiles;
        return w.shared.item_count * (second ? tiles.gemm1 + tiles.gemm2 : tiles.gemm1);
    }
};

}  // namespace musetrace::megakernel::ops
