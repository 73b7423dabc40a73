// Graphs of launches, timed by turns. Ratios of neighbours hold where single figures do not: the clock and the memory
// of a GPU are not the same from one second to the next.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megakernel/cuda_errors.h"
#include "probe/device_probe.h"

namespace musetrace::probe {

class GraphTimer {
  public:
    GraphTimer() {
        using megakernel::check;
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
        check(cudaEventCreate(&begin_), "making an event");
        check(cudaEventCreate(&end_), "making an event");
    }
    ~GraphTimer() {
        for (const cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
        if (begin_ != nullptr) cudaEventDestroy(begin_);
        if (end_ != nullptr) cudaEventDestroy(end_);
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }
    GraphTimer(const GraphTimer&) = delete;
    GraphTimer& operator=(const GraphTimer&) = delete;

    // A graph of what launch(0, stream) to launch(launches - 1, stream) launch.
    template <class Launch>
    void add(std::uint32_t launches, Launch launch) {
        using megakernel::check;
        check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning a graph");
        Captured captured{stream_};
        for (std::uint32_t i = 0; i < launches; ++i) launch(i, stream_);
        check(captured.end(), "capturing a graph");
        cudaGraphExec_t ready = nullptr;
        check(cudaGraphInstantiate(&ready, captured.graph, 0), "making a graph");
        graphs_.push_back(ready);
    }

    // Runs a graph to its end. Microseconds.
    float run_us(std::size_t graph) {
        using megakernel::check;
        float ms = 0;
        check(cudaEventRecord(begin_, stream_), "recording an event");
        check(cudaGraphLaunch(graphs_[graph], stream_), "launching a graph");
        check(cudaEventRecord(end_, stream_), "recording an event");
        check(cudaEventSynchronize(end_), "running a graph");
        check(cudaEventElapsedTime(&ms, begin_, end_), "timing a graph");
        return ms * 1000;
    }

    // A round is all graphs, forward and then backward, so that a drift hits all of them alike; one round more at the
    // begin is the warm-up. Microseconds of each graph, two figures a round.
    std::vector<std::vector<float>> interleaved_us(std::uint32_t rounds) {
        std::vector<std::vector<float>> us(graphs_.size());
        for (std::uint32_t round = 0; round < rounds + 1; ++round) {
            for (std::size_t step = 0; step < 2 * graphs_.size(); ++step) {
                const std::size_t graph = step < graphs_.size() ? step : 2 * graphs_.size() - 1 - step;
                const float took = run_us(graph);
                if (round != 0) us[graph].push_back(took);
            }
        }
        return us;
    }

  private:
    // Ends the capture after an error too.
    struct Captured {
        cudaStream_t stream;
        cudaGraph_t graph = nullptr;
        bool ended = false;

        cudaError_t end() {
            ended = true;
            return cudaStreamEndCapture(stream, &graph);
        }
        ~Captured() {
            if (!ended) end();
            if (graph != nullptr) cudaGraphDestroy(graph);
        }
    };

    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
    std::vector<cudaGraphExec_t> graphs_;
};

// Of one launch each, where graphs have so many.
inline Times per_launch(const std::vector<std::vector<float>>& us, std::uint32_t launches) {
    Times times{{us.size(), us.empty() ? 0 : us.front().size()}, {}};
    for (const std::vector<float>& of_graph : us) {
        for (const float each : of_graph) times.values.push_back(each / static_cast<float>(launches));
    }
    return times;
}

}  // namespace musetrace::probe
