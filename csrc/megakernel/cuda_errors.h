// CUDA errors and wrong arguments as exceptions of one line.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace musetrace::megakernel {

// `what` was being done. Throws std::runtime_error unless `error` is cudaSuccess.
inline void check(int error, const std::string& what) {
    if (error == cudaSuccess) return;
    cudaGetLastError();  // or the next launch would be told of it
    throw std::runtime_error(what + ": " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

// Throws std::invalid_argument.
inline void require(bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument(what);
}

}  // namespace musetrace::megakernel
