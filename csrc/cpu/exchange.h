// A rank's receive buffers: everything that another block or another rank sends it within a layer launch. All are
// slots (sync/slots.h). Two copies alternate from launch to launch.
//
// Why a copy may be used again: launch L reads copy L % 2 and resets the other one. The next writer of the reset
// copy is a block of launch L + 1, and launch L + 1 begins after launch L has ended on every rank of this device
// (the launch queue joins all warps), so the reset is done and visible. Between real devices the same order comes
// from stop 5: a rank sends its stop-5 rows after its reset, and no peer ends launch L without them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/step_state.h"
#include "muse/draft_shape.h"
#include "muse/shape.h"
#include "sync/host_arch.h"
#include "sync/slots.h"

namespace musetrace::cpu {

using GatherBf16 = sync::Slots<sync::HostArch, sync::GatherBf16>;
using SumBf16 = sync::Slots<sync::HostArch, sync::SumBf16>;
using GatherF32 = sync::Slots<sync::HostArch, sync::GatherF32>;

// Of a draft row, from one block's share of the vocabulary: its best scores (fp32), their tokens, its highest score,
// and the sum of exp(score - highest).
inline constexpr std::uint32_t kCandidateWords = 2 * kMaxTopK + 2;

struct ExchangeCopy {
    // Within the rank: written by the block that made them, read by all blocks of the rank.
    std::vector<std::uint16_t> heads;  // [token][q_heads * head_dim], gated attention output
    std::vector<std::uint32_t> rows1;  // [token][hidden] fp32, out-projection summed over ranks
    std::vector<std::uint32_t> rows5;  // [token][hidden] fp32, unpooler output summed over ranks
    // Between ranks.
    std::vector<std::uint16_t> partial1;  // [rank][token][hidden], out-projection of each rank
    std::vector<std::uint16_t> partial5;  // [rank][token][hidden], unpooler of each rank
    std::vector<std::uint16_t> pooled;    // [token][moe_hidden]
    std::vector<std::uint32_t> logits;    // [token][experts] fp32
    std::vector<std::uint16_t> features;  // [pair][intermediate], SwiGLU output
    std::vector<std::uint16_t> outputs;   // [pair][moe_hidden], expert output
    // Of the draft and of accepting.
    std::vector<std::uint16_t> mlp_features;  // within the rank: [token][intermediate of the rank]
    std::vector<std::uint32_t> candidates;    // [rank][block][token][kCandidateWords]
    std::vector<std::uint32_t> choices;       // [rank][block][token][2], score (fp32) and token

    ExchangeCopy(const Shape& s, const DraftShape& d)
        : heads(std::size_t{kTokens} * std::max(s.head_columns(), d.head_columns())),
          rows1(std::size_t{kTokens} * s.hidden),
          rows5(std::size_t{kTokens} * s.hidden),
          partial1(std::size_t{s.ranks} * kTokens * s.hidden),
          partial5(std::size_t{s.ranks} * kTokens * s.hidden),
          pooled(std::size_t{kTokens} * s.moe_hidden),
          logits(std::size_t{kTokens} * s.experts),
          features(std::size_t{s.pairs()} * s.intermediate),
          outputs(std::size_t{s.pairs()} * s.moe_hidden),
          mlp_features(std::size_t{kTokens} * d.intermediate),
          candidates(std::size_t{s.ranks} * s.blocks * kTokens * kCandidateWords),
          choices(std::size_t{s.ranks} * s.blocks * kTokens * 2) {
        reset(0, 1);
    }

    // Block `block`'s share of the reset.
    void reset(std::uint32_t block, std::uint32_t blocks) {
        const auto part = [&](auto slots, auto& buffer) {
            using S = decltype(slots);
            const Share share = block_share(static_cast<std::uint32_t>(buffer.size()), block, blocks);
            S::reset(buffer.data() + share.begin, share.size());
        };
        part(GatherBf16{}, heads);
        part(GatherF32{}, rows1);
        part(GatherF32{}, rows5);
        part(SumBf16{}, partial1);
        part(SumBf16{}, partial5);
        part(GatherBf16{}, pooled);
        part(GatherF32{}, logits);
        part(GatherBf16{}, features);
        part(GatherBf16{}, outputs);
        part(GatherBf16{}, mlp_features);
        part(GatherF32{}, candidates);
        part(GatherF32{}, choices);
    }
};

}  // namespace musetrace::cpu
