// What stands between draft and verify passes on a GPU: the tree, its embedding, accepting, and the kept rows. Owned by
// the MuseDevice, with whose launches its own go into one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "megakernel/device_buffer.h"
#include "megakernel/step/kernel.cuh"

namespace musetrace::megakernel::step {

// What it has in common with the launches around its own.
struct Target {
    Shape shape;
    std::uint32_t first_rank;  // of those held here
    bool loopback;
    bool programmatic;
    std::uint64_t budget_ns;
    cudaStream_t stream;
    StepState* state;
    abi::WaitReport* report;
    std::uint32_t* abort;
};

// A rank's, in device memory.
struct RankMemory {
    const float* logits;
    float* residual;                 // that an entry launch reads
    const std::uint16_t* embedding;  // bf16 [token][hidden]
};

class StepDevice {
  public:
    // `caches` [rank][layer]: of the ranks held here. Throws std::runtime_error when CUDA fails.
    StepDevice(const Target& target, const std::vector<std::vector<KvRows>>& caches);

    // What other GPUs send their parts of the logits to, and the same of each of them.
    char* parts() const { return parts_.as<char>(); }
    void set_peers(const std::vector<char*>& parts) { peers_ = parts; }
    // Other processes may have mapped it: it stays until the end of the process.
    void leave_parts() { parts_.leave(); }
    void set_delay_seed(std::uint32_t seed) { delay_seed_ = seed; }

    // `ranks`: as now, for buffers take turns.
    void launch(StepKind kind, LayerBuild build, const std::vector<RankMemory>& ranks, char* stamps,
                std::uint32_t epoch, const StampRow& stamp_row);
    // As before the first launch; none may run.
    void reset();

  private:
    const Target target_;
    Buffer parts_, turn_;
    std::vector<char*> peers_;
    std::vector<Buffer> caches_;
    std::uint32_t delay_seed_ = 0;
};

}  // namespace musetrace::megakernel::step
