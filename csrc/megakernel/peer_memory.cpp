#include "megakernel/peer_memory.h"

#include <cstring>
#include <string>

#include "megakernel/cuda_errors.h"

namespace musetrace::megakernel {

PeerHandles export_regions(std::uint32_t rank, const std::vector<char*>& regions) {
    PeerHandles handles;
    for (char* memory : regions) {
        check(cudaIpcGetMemHandle(&handles.emplace_back(), memory),
              "exporting the exchange of rank " + std::to_string(rank) + " (cudaIpcGetMemHandle)");
    }
    return handles;
}

void PeerMemory::open(std::uint32_t rank, const PeerHandles& handles) {
    std::vector<char*> regions;
    for (const cudaIpcMemHandle_t& handle : handles) regions.push_back(map(rank, handle));
    place(rank, regions);
}

char* PeerMemory::map(std::uint32_t rank, const cudaIpcMemHandle_t& handle) {
    for (const Mapping& known : mapped_) {
        if (std::memcmp(&known.handle, &handle, sizeof handle) == 0) return static_cast<char*>(known.memory);
    }
    void* memory = nullptr;
    check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
          "mapping the exchange of rank " + std::to_string(rank) + " (cudaIpcOpenMemHandle)");
    mapped_.push_back({handle, memory});
    return static_cast<char*>(memory);
}

void PeerMemory::close() {
    for (const Mapping& mapping : mapped_) cudaIpcCloseMemHandle(mapping.memory);
    mapped_.clear();
    for (auto& regions : regions_) regions.clear();
}

}  // namespace musetrace::megakernel
