// What stands between draft and verify passes on a GPU: the tree, its embedding, accepting, and the kept rows. Owned by
// the MuseDevice, with whose launches its own go into one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "megakernel/device_buffer.h"
#include "megakernel/step/kernel.cuh"

namespace musetrace::megakernel::step {

// A rank's, in device memory.
struct RankMemory {
    const float* logits;
    float* residual;                 // that an entry launch reads
    const std::uint16_t* embedding;  // bf16 [token][hidden]
};

class StepDevice {
  public:
    // `caches` [rank][layer]: of the ranks held here. Throws std::runtime_error when CUDA fails.
    StepDevice(const Shape& shape, const std::vector<std::vector<KvRows>>& caches, StepState* state, bool programmatic,
               cudaStream_t stream);

    // `ranks`: as now, for buffers take turns.
    void launch(StepKind kind, LayerBuild build, const std::vector<RankMemory>& ranks, char* stamps,
                std::uint32_t epoch, const StampRow& stamp_row);
    // Behind a launch that was given up.
    void reset();

  private:
    const Shape shape_;
    StepState* const state_;
    const bool programmatic_;
    const cudaStream_t stream_;
    Buffer parts_, arrived_;
    std::vector<Buffer> caches_;
};

}  // namespace musetrace::megakernel::step
