// The exchange of ranks that other processes hold, each on a GPU of its own: their memory, mapped here by CUDA IPC. To
// the kernel it is memory like any other.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "megakernel/layer_params.h"

namespace musetrace::megakernel {

// Small allocations share a block of 2 MiB, and a handle is one of the whole block: what is exported has blocks of its
// own.
constexpr std::size_t exported_bytes(std::size_t bytes) {
    constexpr std::size_t kBlock = std::size_t{2} << 20;
    return (bytes + kBlock - 1) / kBlock * kBlock;
}

// What another process needs to map both copies of a rank's exchange. Plain bytes.
struct PeerHandles {
    cudaIpcMemHandle_t copy[2];
};

// Of memory in allocations of its own. Throws std::runtime_error when CUDA refuses.
PeerHandles export_copies(std::uint32_t rank, void* first, void* second);

class PeerMemory {
  public:
    PeerMemory() = default;
    ~PeerMemory() { close(); }
    PeerMemory(const PeerMemory&) = delete;
    PeerMemory& operator=(const PeerMemory&) = delete;

    // Maps a rank of another process on the same host. Throws std::runtime_error when CUDA refuses.
    void open(std::uint32_t rank, const PeerHandles& handles);
    // Null when it is not mapped.
    char* copy(std::uint32_t rank, std::uint32_t which) const { return mapped_.at(rank)[which]; }
    // All mappings end. No launch may run that writes to them.
    void close();

  private:
    std::array<std::array<char*, 2>, kMaxRanks> mapped_{};
};

}  // namespace musetrace::megakernel
