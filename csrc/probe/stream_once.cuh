// A kernel that reads memory once, a warp for each block: to time it, or to fill L2 with it.
#pragma once

#include "probe/bulk_stream.cuh"

namespace musetrace::probe {
namespace {

__global__ void __launch_bounds__(abi::kLanesPerWarp, 1)
    stream_once(const char* data, std::uint64_t pieces, std::uint32_t in_flight, abi::WaitReport* report) {
    extern __shared__ __align__(128) char bytes[];
    PieceRing& ring = *reinterpret_cast<PieceRing*>(bytes);
    if (threadIdx.x == 0) ring.init(report);
    __syncthreads();
    std::uint64_t piece = blockIdx.x;
    sync::RingCursor cursor;
    stream_pieces(ring, cursor, in_flight, [&]() -> const char* {
        const char* next = piece < pieces ? data + piece * kPieceBytes : nullptr;
        piece += gridDim.x;
        return next;
    });
}

}  // namespace
}  // namespace musetrace::probe
