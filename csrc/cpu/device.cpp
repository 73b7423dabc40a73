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

void check_draft(const Shape& s, const DraftShape& d, const DeviceOptions& options) {
    if (d.layers == 0) return;
    require(d.kv_heads != 0 && d.q_heads % d.kv_heads == 0, "the draft's query heads must divide by its KV heads");
    require(d.num_targets >= 1 && d.num_targets <= kMaxTargetLayers,
            "a draft takes " + std::to_string(kMaxTargetLayers) + " target layers at most");
    for (std::uint32_t i = 0; i < d.num_targets; ++i) require(d.targets[i] < s.layers, "no such target layer");
    const std::uint32_t width = d.feature_width(s.hidden);
    require(width % s.ranks == 0, "the draft's features must divide by the number of ranks");
    for (const std::uint32_t k : {d.head_dim, d.intermediate, width / s.ranks}) {
        require(k != 0 && k % 16 == 0, "every inner width of the draft must be a multiple of 16");
        require(options.stage_bytes >= 2 * k, "a ring stage must hold a weight row of the draft: raise stage_bytes");
    }
    require(options.stage_bytes >= 2 * d.head_columns(),
            "a ring stage must hold a weight row of the draft: raise stage_bytes");
    require(d.window >= kTokens, "the draft's window must hold a pass");
}

bool needs_draft(LaunchKind kind) {
    return kind == LaunchKind::kDraftContext || kind == LaunchKind::kDraftLayer || kind == LaunchKind::kDraftHead ||
           kind == LaunchKind::kDraftTree;
}

std::string full(std::uint32_t position, std::uint32_t capacity) {
    return "the KV cache is full: position " + std::to_string(position) + " + 16 tokens > " + std::to_string(capacity);
}

constexpr std::uint32_t kWarps = MuseLayer::kWarpsPerBlock;

}  // namespace

Device::Device(const Shape& shape, const DeviceOptions& options, const DraftShape& draft)
    : shape_(shape), draft_(draft), options_(options) {
    check(shape, options);
    check_draft(shape, draft, options);
    for (std::uint32_t r = 0; r < shape.ranks; ++r) ranks_.emplace_back(shape, draft);
    for (std::uint32_t i = 0; i < shape.ranks * shape.blocks; ++i) {
        blocks_.push_back(std::make_unique<Block>(shape, draft, options.stages, options.stage_bytes));
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
    const bool from_state = request.position == kFromState;
    require(from_state || std::uint64_t{request.position} + kTokens <= shape_.capacity,
            full(request.position, shape_.capacity));
    require(request.kind != LaunchKind::kLayer || request.layer < shape_.layers, "no such layer");
    require(request.kind != LaunchKind::kDraftLayer || request.layer < draft_.layers, "no such draft layer");
    require(!needs_draft(request.kind) || draft_.layers != 0, "the device has no draft");
    for (const Rank& rank : ranks_) {
        require(!needs_draft(request.kind) || rank.draft.fc.values != nullptr, "the draft has no weights yet");
    }
    require(from_state || (!needs_draft(request.kind) && request.kind != LaunchKind::kAccept),
            "a launch of draft or accepting takes its position from the step's state");
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
    if (failed_first_ == 0 || ticket < failed_first_ || ticket > failed_last_) return;
    if (failed_full_) throw std::invalid_argument(full(ranks_[0].state.position, shape_.capacity));
    throw LaunchFailed(failed_report_);
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
            failed_full_ = report_.claimed == 0;
        }
        launch_done_.notify_all();
    }
}

// Runs with the mutex free; only the runner thread is here.
bool Device::run_launch(const LaunchRequest& request) {
    report_ = {};
    launch_ = resolved(request);
    if (launch_.position + kTokens > shape_.capacity) return false;
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
    if (ended_well) keep_state(request);
    for (Rank& rank : ranks_) rank.next_experts.clear();
    parity_ ^= 1u;
    return ended_well;
}

// What a launch leaves for the next step.
void Device::keep_state(const LaunchRequest& request) {
    for (Rank& rank : ranks_) {
        if (request.kind == LaunchKind::kLayer) rank.previous_experts[request.layer].swap(rank.next_experts);
        if (request.kind == LaunchKind::kDraftTree || request.kind == LaunchKind::kAccept) rank.state = rank.next_state;
    }
}

// The state is the same on every rank.
Launch Device::resolved(const LaunchRequest& request) const {
    const StepState& state = ranks_[0].state;
    const bool from_state = request.position == kFromState;
    const std::uint32_t position = from_state ? state.position : request.position;
    const Rows rows = needs_draft(request.kind) ? Rows::block(position)
                      : from_state              ? Rows::tree(state)
                                                : Rows::chain(position);
    return {request.kind,
            request.layer,
            position,
            from_state,
            rows,
            Rows::chain(position - std::min(position, state.kept)),
            parity_,
            request.stamps,
            request.stamp_base,
            request.epoch,
            delays_ns_.empty() ? nullptr : delays_ns_.data()};
}

void Device::prepare(const LaunchRequest& request) {
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
                  draft_,
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
