// Chains as CUDA graphs: captured once, replayed and timed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baseline/chain.h"

namespace musetrace::baseline {

enum class ChainKind { kEntry, kLayer, kHead };

struct ChainStep {
    ChainKind kind;
    ChainParams params;
};

cudaError_t launch_step(const ChainStep& step, ChainMode mode, cudaStream_t stream);

// A stream and the graphs that were captured on it.
class ChainGraphs {
  public:
    ChainGraphs() = default;
    ~ChainGraphs();
    ChainGraphs(const ChainGraphs&) = delete;
    ChainGraphs& operator=(const ChainGraphs&) = delete;

    // Before anything else.
    cudaError_t open();

    cudaStream_t stream() const { return stream_; }
    std::size_t size() const { return graphs_.size(); }
    // Appends a graph of these steps.
    cudaError_t capture(const std::vector<ChainStep>& steps, ChainMode mode);
    // Do not wait.
    cudaError_t replay(std::size_t graph, std::uint32_t times);
    cudaError_t wait() { return cudaStreamSynchronize(stream_); }
    // A round is all graphs, forward and then backward; samples[i] gets two times of graphs[i] a round, in ms.
    cudaError_t time(const std::vector<std::size_t>& graphs, std::uint32_t rounds,
                     std::vector<std::vector<float>>& samples);

  private:
    cudaError_t time_once(std::size_t graph, std::vector<float>& samples);

    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
    std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace musetrace::baseline
