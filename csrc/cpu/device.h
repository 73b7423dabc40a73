// The host device: virtual ranks and their blocks, whose warps are threads, and a queue of layer launches that run
// one after the other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cpu/warp.h"
#include "musetrace/abi/wait_report.h"

namespace musetrace::cpu {

struct DeviceOptions {
    std::uint32_t stages = 6;
    std::uint32_t stage_bytes = 16384;
    std::uint64_t budget_ns = 30'000'000'000;  // of a wait inside a launch
};

// As a launch's position: that of the step's state, when the launch begins. The rows are then the state's tree.
inline constexpr std::uint32_t kFromState = 0xFFFFFFFF;

struct LaunchRequest {
    LaunchKind kind;
    std::uint32_t layer;
    std::uint32_t position;
    StampMode stamps;
    char* stamp_base;
    std::uint32_t epoch;
};

// A wait of the launch ran out of time.
class LaunchFailed : public std::runtime_error {
  public:
    explicit LaunchFailed(const abi::WaitReport& report)
        : std::runtime_error("a wait inside the launch ran out of time"), report(report) {}
    abi::WaitReport report;
};

class Device {
  public:
    // Throws std::invalid_argument when the shapes cannot be run.
    Device(const Shape& shape, const DeviceOptions& options, const DraftShape& draft = {});
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const Shape& shape() const { return shape_; }
    const DraftShape& draft() const { return draft_; }
    Rank& rank(std::uint32_t rank) { return ranks_.at(rank); }
    // What the last launch left for the next one. Only while the queue is empty.
    Activations& activations(std::uint32_t rank) { return ranks_.at(rank).activations[parity_]; }

    // Residual stream of the next launch, [token][hidden], to every rank. Waits until the queue is empty.
    void set_residual(const float* residual);
    // Nanoseconds slept at the begin of a job of a rank, in launches from now on.
    void set_delay(std::uint32_t rank, std::uint32_t job, std::uint64_t delay_ns);

    // Queues a launch and returns its ticket (1, 2, ...).
    std::uint64_t launch(const LaunchRequest& request);
    // Until the launch has ended. Throws when it, or one before it in the queue, did not end well: LaunchFailed after a
    // wait that ran out of time, std::invalid_argument where the step's state left no room in the KV cache. The device
    // is usable afterwards.
    void wait(std::uint64_t ticket);
    void wait_idle();

  private:
    struct Queued {
        std::uint64_t ticket;
        LaunchRequest request;
    };

    void run_queue();
    bool run_launch(const LaunchRequest& request);
    void prepare(const LaunchRequest& request);
    Launch resolved(const LaunchRequest& request) const;
    void keep_state(const LaunchRequest& request);
    StampRegion stamp_region(std::uint32_t rank, StampMode mode) const;
    void run_worker(std::uint32_t rank, std::uint32_t block, std::uint32_t warp);
    template <StampMode kMode>
    void run_warp_as(std::uint32_t rank, std::uint32_t block, std::uint32_t warp);
    Block& block(std::uint32_t rank, std::uint32_t block) { return *blocks_[rank * shape_.blocks + block]; }

    const Shape shape_;
    const DraftShape draft_;
    const DeviceOptions options_;
    std::vector<Rank> ranks_;
    std::vector<std::unique_ptr<Block>> blocks_;  // [rank][block]
    std::vector<std::uint64_t> delays_ns_;        // [rank][job], empty while none is set

    std::mutex mutex_;
    std::condition_variable queue_changed_, workers_done_, launch_done_;
    std::deque<Queued> queue_;
    std::uint64_t last_ticket_ = 0;
    std::uint64_t ended_ticket_ = 0;
    std::uint64_t failed_first_ = 0, failed_last_ = 0;  // tickets of the last failure; 0 when there was none
    bool failed_full_ = false;                          // it was for want of room in the KV cache
    abi::WaitReport failed_report_{};
    bool stopping_ = false;  // the runner ends when the queue is empty

    Launch launch_{};  // the one that runs
    abi::WaitReport report_{};
    std::uint32_t parity_ = 0;
    sync::EventWord generation_;  // of launches; the workers wait on it
    bool dismissed_ = false;      // published with a last generation: the workers end
    std::atomic<std::uint32_t> running_{0};
    std::vector<std::thread> workers_;
    std::thread runner_;
};

}  // namespace musetrace::cpu
