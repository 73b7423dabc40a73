#include "baseline/graphs.h"

namespace musetrace::baseline {

cudaError_t launch_step(const ChainStep& step, ChainMode mode, cudaStream_t stream) {
    switch (step.kind) {
        case ChainKind::kEntry:
            return launch_entry_chain(step.params, mode, stream);
        case ChainKind::kLayer:
            return launch_layer_chain(step.params, mode, stream);
        case ChainKind::kHead:
            return launch_head_chain(step.params, mode, stream);
    }
    return cudaErrorInvalidValue;
}

ChainGraphs::~ChainGraphs() {
    if (stream_ == nullptr) return;
    cudaStreamSynchronize(stream_);
    for (const cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
}

cudaError_t ChainGraphs::open() {
    // Ordered behind what the default stream does: copies from the host may still be under way when they return.
    cudaError_t error = cudaStreamCreate(&stream_);
    if (error == cudaSuccess) error = cudaEventCreate(&begin_);
    if (error == cudaSuccess) error = cudaEventCreate(&end_);
    return error;
}

cudaError_t ChainGraphs::capture(const std::vector<ChainStep>& steps, ChainMode mode) {
    cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) return error;
    for (const ChainStep& step : steps) {
        error = launch_step(step, mode, stream_);
        if (error != cudaSuccess) break;
    }
    // Also after an error: the stream must leave the capture.
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (error == cudaSuccess) error = ended;
    cudaGraphExec_t executable = nullptr;
    if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (error == cudaSuccess) graphs_.push_back(executable);
    return error;
}

cudaError_t ChainGraphs::replay(std::size_t graph, std::uint32_t times) {
    for (std::uint32_t i = 0; i < times; ++i) {
        if (const cudaError_t error = cudaGraphLaunch(graphs_[graph], stream_); error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t ChainGraphs::time_once(std::size_t graph, std::vector<float>& samples) {
    float ms = 0.0f;
    cudaError_t error = cudaEventRecord(begin_, stream_);
    if (error == cudaSuccess) error = replay(graph, 1);
    if (error == cudaSuccess) error = cudaEventRecord(end_, stream_);
    if (error == cudaSuccess) error = cudaEventSynchronize(end_);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, begin_, end_);
    samples.push_back(ms);
    return error;
}

cudaError_t ChainGraphs::time(const std::vector<std::size_t>& graphs, std::uint32_t rounds,
                              std::vector<std::vector<float>>& samples) {
    samples.assign(graphs.size(), {});
    // The first replay of a graph uploads it.
    for (const std::size_t graph : graphs) {
        if (const cudaError_t error = replay(graph, 1); error != cudaSuccess) return error;
    }
    for (std::uint32_t i = 0; i < 2 * rounds * graphs.size(); ++i) {
        const std::size_t place = i % (2 * graphs.size());
        const std::size_t which = place < graphs.size() ? place : 2 * graphs.size() - 1 - place;
        if (const cudaError_t error = time_once(graphs[which], samples[which]); error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace musetrace::baseline
