#include "cpu/device.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "cpu/layer.h"

namespace musetrace::cpu {
namespace {

void require(bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument(what);
}

void check(const Shape& s, const DeviceOptions& options) {
    require(s.ranks >= 1 && s.blocks >= 1 && s.layers >= 1, "ranks, blocks and layers must be at least 1");
    require(s.hidden >= s.blocks && s.vocab >= s.blocks,
            "more blocks than rows of hidden or vocabulary: use fewer blocks");
    require(s.moe_hidden % s.ranks == 0 && s.intermediate % s.ranks == 0 && s.experts % s.ranks == 0,
            "expert widths and count must divide by the number of ranks");
    for (const std::uint32_t k :
         {s.hidden, s.head_columns(), s.head_dim, s.moe_hidden, s.pooled_rows(), s.intermediate}) {
        require(k != 0 && k % 16 == 0, "every inner width must be a multiple of 16, got " + std::to_string(k));
    }
    require(s.kv_heads != 0 && s.q_heads % s.kv_heads == 0, "query heads must divide by KV heads");
    require(s.top_k >= 1 && s.top_k <= s.experts, "top_k must lie between 1 and the number of experts");
    require(s.capacity >= kTokens, "the KV cache must hold at least 16 tokens");
    const std::uint32_t largest_row = 4 * s.hidden;  // the fp32 router
    require(options.stages >= 2, "the ring needs at least 2 stages");
    require(options.stage_bytes >= largest_row && options.stage_bytes >= 4 * s.moe_hidden &&
                options.stage_bytes >= 2 * s.intermediate && options.stage_bytes >= 2 * s.head_columns(),
            "a ring stage must hold a weight row: raise stage_bytes to " + std::to_string(largest_row) + " or more");
}

constexpr std::uint32_t kWarps = MuseLayer::kWarpsPerBlock;

}  // namespace

Device::Device(const Shape& shape, const DeviceOptions& options) : shape_(shape), options_(options) {
    check(shape, options);
    for (std::uint32_t r = 0; r < shape.ranks; ++r) ranks_.emplace_back(shape);
    for (std::uint32_t i = 0; i < shape.ranks * shape.blocks; ++i) {
        blocks_.push_back(std::make_unique<Block>(shape, options.stages, options.stage_bytes));
    }
    for (std::uint32_t r = 0; r < shape.ranks; ++r) {
        for (std::uint32_t b = 0; b < shape.blocks; ++b) {
            for (std::uint32_t w = 0; w < kWarps; ++w) workers_.emplace_back([=] { run_worker(r, b, w); });
        }
    }
    runner_ = std::thread([this] { run_queue(); });
}

Device::~Device() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    queue_changed_.notify_all();
    runner_.join();
    dismissed_ = true;  // only now: launches that were still queued needed every worker
    generation_.publish(generation_.value() + 1);
    for (std::thread& worker : workers_) worker.join();
}

void Device::set_residual(const float* residual) {
    wait_idle();
    const std::lock_guard lock(mutex_);
    for (Rank& rank : ranks_) {
        std::vector<float>& rows = rank.activations[parity_].residual;
        std::memcpy(rows.data(), residual, rows.size() * sizeof(float));
    }
}

void Device::set_delay(std::uint32_t rank, std::uint32_t job, std::uint64_t delay_ns) {
    require(rank < shape_.ranks && job < MuseLayer::kNumJobs, "no such rank or job to delay");
    wait_idle();
    const std::lock_guard lock(mutex_);
    delays_ns_.resize(std::size_t{shape_.ranks} * MuseLayer::kNumJobs);
    delays_ns_[rank * MuseLayer::kNumJobs + job] = delay_ns;
}

std::uint64_t Device::launch(const LaunchRequest& request) {
    require(request.position + kTokens <= shape_.capacity, "the KV cache is full: position " +
                                                               std::to_string(request.position) + " + 16 tokens > " +
                                                               std::to_string(shape_.capacity));
    require(request.kind != LaunchKind::kLayer || request.layer < shape_.layers, "no such layer");
    std::uint64_t ticket;
    {
        const std::lock_guard lock(mutex_);
        ticket = ++last_ticket_;
        queue_.push_back({ticket, request});
    }
    queue_changed_.notify_all();
    return ticket;
}

void Device::wait(std::uint64_t ticket) {
    std::unique_lock lock(mutex_);
    require(ticket >= 1 && ticket <= last_ticket_, "no such launch");
    launch_done_.wait(lock, [&] { return ended_ticket_ >= ticket; });
    if (failed_first_ != 0 && ticket >= failed_first_ && ticket <= failed_last_) throw LaunchFailed(failed_report_);
}

void Device::wait_idle() {
    std::unique_lock lock(mutex_);
    launch_done_.wait(lock, [&] { return ended_ticket_ == last_ticket_; });
}

void Device::run_queue() {
    std::unique_lock lock(mutex_);
    for (;;) {
        queue_changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const Queued next = queue_.front();
        queue_.pop_front();
        lock.unlock();
        const bool ended_well = run_launch(next.request);
        lock.lock();
        ended_ticket_ = next.ticket;
        if (!ended_well) {
            // What is queued behind it would work on its unfinished output.
            queue_.clear();
            failed_first_ = next.ticket;
            failed_last_ = ended_ticket_ = last_ticket_;
            failed_report_ = report_;
        }
        launch_done_.notify_all();
    }
}

// Runs with the mutex free; only the runner thread is here.
bool Device::run_launch(const LaunchRequest& request) {
    prepare(request);
    running_ = static_cast<std::uint32_t>(workers_.size());
    generation_.publish(generation_.value() + 1);
    std::unique_lock lock(mutex_);
    workers_done_.wait(lock, [&] { return running_ == 0; });
    const bool ended_well = report_.claimed == 0;
    if (!ended_well) {
        for (Rank& rank : ranks_) {
            for (ExchangeCopy& copy : rank.exchange) copy.reset(0, 1);
        }
    }
    for (Rank& rank : ranks_) {
        if (request.kind == LaunchKind::kLayer) rank.previous_experts[request.layer].swap(rank.next_experts);
        rank.next_experts.clear();
    }
    parity_ ^= 1u;
    return ended_well;
}

void Device::prepare(const LaunchRequest& request) {
    report_ = {};
    launch_ = {request.kind,   request.layer,      request.position, parity_,
               request.stamps, request.stamp_base, request.epoch,    delays_ns_.empty() ? nullptr : delays_ns_.data()};
    for (std::uint32_t r = 0; r < shape_.ranks; ++r) {
        const StampRegion region = stamp_region(r, request.stamps);
        for (std::uint32_t b = 0; b < shape_.blocks; ++b) {
            block(r, b).init();
            // Here and not in a warp: on few cores a block's first warp may come long after its others.
            if (region.base != nullptr) stamp_block(region.header(b), request.epoch, 0);
        }
    }
}

StampRegion Device::stamp_region(std::uint32_t rank, StampMode mode) const {
    const abi::StampLayout layout{shape_.blocks, abi::kSlotMap<MuseLayer>.total, abi::slot_bytes(mode)};
    if (launch_.stamp_base == nullptr || mode == StampMode::kOff) return {nullptr, layout};
    return {launch_.stamp_base + rank * layout.region_bytes(), layout};
}

void Device::run_worker(std::uint32_t rank, std::uint32_t block, std::uint32_t warp) {
    prctl(PR_SET_TIMERSLACK, 1);  // naps of a waiting warp end when they should, not 50 us later
    std::uint32_t seen = 0;
    for (;;) {
        for (std::uint32_t round = 0; generation_.value() == seen; ++round) generation_.pause(round, seen);
        ++seen;
        if (dismissed_) return;
        switch (launch_.stamps) {
            case StampMode::kOff:
                run_warp_as<StampMode::kOff>(rank, block, warp);
                break;
            case StampMode::kStore:
                run_warp_as<StampMode::kStore>(rank, block, warp);
                break;
            case StampMode::kRegister:
                run_warp_as<StampMode::kRegister>(rank, block, warp);
        }
        if (--running_ != 0) continue;
        const std::lock_guard lock(mutex_);  // the runner is between its look and its wait, or waits
        workers_done_.notify_all();
    }
}

template <StampMode kMode>
void Device::run_warp_as(std::uint32_t rank, std::uint32_t block_id, std::uint32_t warp) {
    const StampRegion region = stamp_region(rank, kMode);
    if (region.base != nullptr && warp == 0) {
        region.header(block_id)->sm = static_cast<std::uint32_t>(std::max(sched_getcpu(), 0));
    }
    Warp<kMode> w{shape_,
                  launch_,
                  ranks_,
                  ranks_[rank],
                  block(rank, block_id),
                  {&report_, options_.budget_ns, rank, block_id, warp, &report_.abort},
                  WarpStamps<MuseLayer, kMode>(region, block_id, warp)};
    try {
        run_warp(w);
    } catch (const sync::Abandoned&) {
        // The report says why the launch ends here; what the warp stamped until now says how far it came.
    }
    w.stamps.flush();
}

}  // namespace musetrace::cpu
