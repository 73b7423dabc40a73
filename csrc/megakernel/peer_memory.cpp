#include "megakernel/peer_memory.h"

#include <string>

#include "megakernel/cuda_errors.h"

namespace musetrace::megakernel {

PeerHandles export_copies(std::uint32_t rank, void* first, void* second) {
    PeerHandles handles{};
    const std::string what = "exporting the exchange of rank " + std::to_string(rank) + " (cudaIpcGetMemHandle)";
    check(cudaIpcGetMemHandle(&handles.copy[0], first), what);
    check(cudaIpcGetMemHandle(&handles.copy[1], second), what);
    return handles;
}

void PeerMemory::open(std::uint32_t rank, const PeerHandles& handles) {
    for (std::uint32_t which = 0; which < 2; ++which) {
        void* memory = nullptr;
        check(cudaIpcOpenMemHandle(&memory, handles.copy[which], cudaIpcMemLazyEnablePeerAccess),
              "mapping the exchange of rank " + std::to_string(rank) + " (cudaIpcOpenMemHandle)");
        mapped_.at(rank)[which] = static_cast<char*>(memory);
    }
}

void PeerMemory::close() {
    for (auto& copies : mapped_) {
        for (char*& memory : copies) {
            if (memory != nullptr) cudaIpcCloseMemHandle(memory);
            memory = nullptr;
        }
    }
}

}  // namespace musetrace::megakernel
