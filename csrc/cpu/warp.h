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
};

struct Launch {
    LaunchKind kind;
    std::uint32_t layer;     // kLayer: the layer; kEntry: 0; kHead: number of layers
    std::uint32_t position;  // of the first of the 16 tokens
    std::uint32_t parity;    // which copy of the exchange and of the activations this launch reads
    StampMode stamps;
    char* stamp_base;  // rank 0's region; null when not recorded
    std::uint32_t epoch;
    const std::uint64_t* delays_ns;  // [rank][job], slept at the job's begin; null when none (fault injection)
};

template <StampMode kMode>
struct Warp {
    const Shape& shape;
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
    const LayerWeights& weights() const { return rank.layers[launch.layer]; }
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
