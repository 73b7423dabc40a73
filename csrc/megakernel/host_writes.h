// What the host writes into a GPU's memory, for launches in whatever stream.
//
// cudaMemcpy of up to 64 KB of pageable memory returns when it is staged, cudaMemset when it is queued, and a stream
// made with cudaStreamNonBlocking waits for neither ("API synchronization behavior", CUDA runtime API). So these wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "megakernel/cuda_errors.h"

namespace musetrace::megakernel {

inline void write_bytes(void* to, const void* from, std::size_t bytes, const std::string& what) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), what);
    check(cudaStreamSynchronize(cudaStreamLegacy), what);
}

inline void fill_bytes(void* at, int byte, std::size_t bytes, const std::string& what) {
    check(cudaMemset(at, byte, bytes), what);
    check(cudaStreamSynchronize(cudaStreamLegacy), what);
}

}  // namespace musetrace::megakernel
