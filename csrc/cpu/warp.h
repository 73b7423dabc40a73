// What one warp of a launch carries: where it is, what it works on, and how it stamps.
#pragma once

#include <time.h>

#include <cstdint>

#include "cpu/block.h"
#include "cpu/rank.h"
#include "musetrace/abi/muse_layer_jobs.h"
#include "musetrace/stamp.cuh"
#include "sync/ring.h"
#include "sync/wait.h"

namespace musetrace::cpu {

using abi::MuseLayer;
using sync::HostArch;

enum class LaunchKind : std::uint8_t {
    kEntry,  // embedded tokens in; first layer's qkv out
    kLayer,  // attention to stop 5, and the next layer's qkv unless it is the last layer
    kHead,   // final norm and lm_head
    // The rest of a decode step; all take their position from the step's state.
    kDraftContext,  // the kept rows' context; embedded root and masks in, first draft layer's qkv out
    kDraftLayer,    // attention to the MLP's stop, and the next draft layer's qkv unless it is the last
    kDraftHead,     // the draft's norm and the target's lm_head
    kDraftTree,     // the draft's best tokens, and the tree of them
    kAccept,        // what the target chose, the path that matches, and its rows of the KV cache
};

struct Launch {
    LaunchKind kind;
    std::uint32_t layer;     // kLayer, kDraftLayer: the layer; kEntry: 0; kHead: number of layers
    std::uint32_t position;  // of the first of the 16 tokens; rows before it are in the cache
    bool from_state;         // position and tokens are those of the step's state
    Rows rows;
    Rows context_rows;     // of a draft's context
    std::uint32_t parity;  // which copy of the exchange and of the activations this launch reads
    StampMode stamps;
    char* stamp_base;  // rank 0's region; null when not recorded
    std::uint32_t epoch;
    const std::uint64_t* delays_ns;  // [rank][job], slept at the job's begin; null when none (fault injection)
};

template <StampMode kMode>
struct Warp {
    const Shape& shape;
    const DraftShape& draft;
    const Launch& launch;
    std::vector<Rank>& ranks;
    Rank& rank;
    Block& block;
    sync::Waiter waiter;
    WarpStamps<MuseLayer, kMode> stamps;
    sync::RingCursor cursor{};
    std::uint32_t group_parity = 0;

    std::uint32_t rank_id() const { return waiter.rank; }
    std::uint32_t block_id() const { return waiter.block; }
    std::uint32_t group_warp() const { return waiter.warp - kFirstGroupWarp; }
    std::uint32_t first_token() const { return group_warp() * kTokensPerWarp; }
    bool drafts() const { return launch.kind == LaunchKind::kDraftLayer; }
    const LayerWeights& weights() const { return rank.layers[launch.layer]; }
    const DraftLayerWeights& draft_weights() const { return rank.draft.layers[launch.layer]; }
    ExchangeCopy& exchange() const { return rank.exchange[launch.parity]; }
    ExchangeCopy& exchange_of(std::uint32_t peer) const { return ranks[peer].exchange[launch.parity]; }
    const Activations& input() const { return rank.activations[launch.parity]; }
    Activations& next() const { return rank.activations[launch.parity ^ 1u]; }
    Share share(std::uint32_t total) const { return block_share(total, block_id(), shape.blocks); }

    // One job: stamped at both ends. A job that is abandoned has no end, and the trace says so.
    template <std::uint32_t kJob, class Body>
    void job(Body body) {
        MUSETRACE_BEGIN(stamps, kJob);
        if (launch.delays_ns != nullptr) delay(launch.delays_ns[rank_id() * MuseLayer::kNumJobs + kJob]);
        body();
        MUSETRACE_END(stamps, kJob);
    }

    // All eight group warps meet.
    void group_sync(std::uint32_t site) {
        block.group.arrive();
        block.group.wait_parity(waiter, site, group_parity);
        group_parity ^= 1u;
    }

  private:
    static void delay(std::uint64_t ns) {
        if (ns == 0) return;
        const timespec nap{static_cast<time_t>(ns / 1000000000u), static_cast<long>(ns % 1000000000u)};
        nanosleep(&nap, nullptr);
    }
};

}  // namespace musetrace::cpu
