// The memory that ranks of other processes, each on a GPU of its own, let us write to: mapped here by CUDA IPC. To the
// kernel it is memory like any other.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "megakernel/layer_params.h"

namespace musetrace::megakernel {

// Small allocations share a block of 2 MiB, and a handle is one of the whole block: what is exported has blocks of its
// own.
constexpr std::size_t exported_bytes(std::size_t bytes) {
    constexpr std::size_t kBlock = std::size_t{2} << 20;
    return (bytes + kBlock - 1) / kBlock * kBlock;
}

// What of a rank others write to, each an allocation of its own. The last are there with a draft alone, and the parts
// are the same for all ranks of a GPU.
enum PeerRegion : std::uint32_t {
    kExchange0,
    kExchange1,
    kPeerRegionsOfTarget,
    kDraftExchange0 = kPeerRegionsOfTarget,
    kDraftExchange1,
    kStepParts,
    kPeerRegions
};

// [region]. What another process needs to map them: plain bytes.
using PeerHandles = std::vector<cudaIpcMemHandle_t>;

// Throws std::runtime_error when CUDA refuses.
PeerHandles export_regions(std::uint32_t rank, const std::vector<char*>& regions);

class PeerMemory {
  public:
    PeerMemory() = default;
    ~PeerMemory() { close(); }
    PeerMemory(const PeerMemory&) = delete;
    PeerMemory& operator=(const PeerMemory&) = delete;

    // Maps a rank of another process on the same host; what is mapped already stays where it is. Throws
    // std::runtime_error when CUDA refuses.
    void open(std::uint32_t rank, const PeerHandles& handles);
    // A rank whose memory needs no mapping, for it is this process's.
    void place(std::uint32_t rank, const std::vector<char*>& regions) { regions_.at(rank) = regions; }
    char* region(std::uint32_t rank, std::uint32_t which) const { return regions_.at(rank).at(which); }
    // All mappings end. No launch may run that writes to them.
    void close();

  private:
    char* map(std::uint32_t rank, const cudaIpcMemHandle_t& handle);

    struct Mapping {
        cudaIpcMemHandle_t handle;
        void* memory;
    };
    std::vector<Mapping> mapped_;
    std::array<std::vector<char*>, kMaxRanks> regions_{};
};

}  // namespace musetrace::megakernel
