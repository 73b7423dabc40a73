#include <cuda_runtime.h>

#include <cstdint>

#include "megakernel/cuda_errors.h"
#include "probe/random_words.h"

namespace musetrace::probe {
namespace {

// splitmix64 of the word's number.
__global__ void random_words(std::uint64_t* words, std::size_t count) {
    const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
        std::uint64_t word = (i + 1) * 0x9E3779B97F4A7C15;
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9;
        word = (word ^ word >> 27) * 0x94D049BB133111EB;
        words[i] = word ^ word >> 31;
    }
}

}  // namespace

void fill_random(void* data, std::size_t bytes) {
    random_words<<<132 * 8, 256>>>(static_cast<std::uint64_t*>(data), bytes / sizeof(std::uint64_t));
    megakernel::check(cudaGetLastError(), "making random data");
    megakernel::check(cudaDeviceSynchronize(), "making random data");
}

}  // namespace musetrace::probe
