// A rank's receive buffers within a launch: all are slots (sync/slots.h), data that is its own flag. Two copies
// alternate from launch to launch.
//
// Why a copy may be used again. Launch L uses copy L % 2 of each rank. In launch L the blocks that own columns make the
// other copy empty, each a part of it; launch L + 1 fills it. Before anybody fills a slot of it,
//   1. those who read it in launch L - 1, or in the head behind that, must have ended. The reset itself begins behind
//      them: launches of a device follow each other, with programmatic launch by griddepcontrol.wait;
//   2. the reset must be visible. Who fills the slot is a block of launch L + 1, on our device or on a peer's. Before
//      its first write, all blocks of launch L have ended on its own device (again griddepcontrol.wait). Among them
//      are, for each of our blocks that own columns, blocks of the same number of the ranks there, and such a block has
//      in launch L received, from our block, something that was sent behind the block's part of the reset and its
//      fence:
//        a layer: the sums of stop 5. They are not always sent by the warp that made the reset, warp 3, but warp 3
//        gives the outbox back at stop 1, behind its fence, the group fills it again behind that, and warps 1 to 3 send
//        it.
//        an entry: zeros in the place of these sums, which warp 3 sends behind its fence (ops/reset.cuh).
//      Blocks without columns make nothing empty, for they send nothing of the kind.
// And nothing that was sent in launch L - 1 comes late and fills the copy again behind the reset: all that is sent in a
// launch is received in it.
//
// The argument does not ask which ranks share a device. Between devices it has a begin: both copies are empty before a
// peer's first launch, for which the hosts meet; and they meet twice when a launch was given up, for then slots are
// filled that nobody received: once when no launch runs any more, and again when all copies are empty.
// tests/protocol has all of it.
#pragma once

#include <cstdint>

#include "megakernel/aligned_places.h"
#include "megakernel/geometry.h"

namespace musetrace::megakernel {

// Stop 4: every rank gets all columns of all expert outputs (`kGather`), or only their sums of squares (`kSumsq`): the
// unpooler's K is cut where the outputs' columns are, so a rank needs nothing else of its peers.
enum class Stop4 : std::uint8_t { kGather, kSumsq };

// Attention of some keys: output, maximum, sum, 2 to fill up.
constexpr std::uint32_t part_floats(std::uint32_t head_dim) { return head_dim + 4; }
inline constexpr std::uint32_t kPartFloats = part_floats(64);
inline constexpr std::uint32_t kSumFloats = 4;  // of squares and products of a token's columns, see all_reduce.cuh

// Byte offsets within a copy. What is empty as all ones comes first, what is empty as +0 last.
struct ExchangeLayout {
    // Between the blocks of a rank.
    std::uint64_t attention;  // fp32 [q_heads][token][splits][kPartFloats]
    std::uint64_t heads;      // bf16 by columns, q_heads * 64: gated attention output
    std::uint64_t sums1;      // fp32 [dense block][token][kSumFloats]
    std::uint64_t x1;         // bf16 by columns, hidden: input of pooler and router
    std::uint64_t pool;       // fp32 [slice][tile][token][row of 16]
    std::uint64_t router;     // fp32 [slice][router row][token]
    std::uint64_t expert_x;   // bf16 by rows [token], moe_hidden: normed
    std::uint64_t combined;   // bf16 by columns, pooled_rows
    std::uint64_t sums5;      // as sums1
    std::uint64_t x5;         // as x1: input of the next qkv
    std::uint64_t qkv;        // fp32 [slice][token][row]
    // Between ranks.
    std::uint64_t pooled;    // bf16 by rows [token], moe_hidden
    std::uint64_t logits;    // fp32 [token][expert]
    std::uint64_t features;  // bf16 by rows [pair], intermediate
    std::uint64_t outputs;   // bf16 by rows [pair], moe_hidden (kGather) or the rank's pooled_rows (kSumsq)
    std::uint64_t squares;   // fp32 [rank][pair][tile of GEMM 2], kSumsq
    std::uint64_t partial1;  // bf16 sums [rank], by columns, hidden
    std::uint64_t partial5;
    std::uint64_t bytes;

    constexpr std::uint64_t ones_bytes() const { return partial1; }
};

constexpr ExchangeLayout make_exchange(const Shape& s, const Plan& plan, Stop4 stop4) {
    constexpr std::uint64_t kToken = kTokens;
    AlignedPlaces places;
    ExchangeLayout e{};
    e.attention = places.take(kToken * s.q_heads * plan.splits * kPartFloats * 4);
    e.heads = places.take(kToken * s.head_columns() * 2);
    e.sums1 = places.take(kToken * plan.dense_blocks * kSumFloats * 4);
    e.x1 = places.take(kToken * s.hidden * 2);
    e.pool = places.take(kToken * plan.pool_slices * s.pooled_rows() * 4);
    e.router = places.take(kToken * plan.pool_slices * s.router_rows() * 4);
    e.expert_x = places.take(kToken * s.moe_hidden * 2);
    e.combined = places.take(kToken * s.pooled_rows() * 2);
    e.sums5 = places.take(kToken * plan.dense_blocks * kSumFloats * 4);
    e.x5 = places.take(kToken * s.hidden * 2);
    e.qkv = places.take(kToken * plan.qkv_slices * s.qkv_units() * s.head_dim * 4);
    e.pooled = places.take(kToken * s.moe_hidden * 2);
    e.logits = places.take(kToken * s.experts * 4);
    e.features = places.take(std::uint64_t{s.pairs()} * s.intermediate * 2);
    e.outputs = places.take(std::uint64_t{s.pairs()} * (stop4 == Stop4::kGather ? s.moe_hidden : s.pooled_rows()) * 2);
    e.squares = places.take(std::uint64_t{s.ranks} * s.pairs() * ExpertTiles(s).gemm2 * 4);
    e.partial1 = places.take(kToken * s.ranks * s.hidden * 2);
    e.partial5 = places.take(kToken * s.ranks * s.hidden * 2);
    e.bytes = places.bytes();
    return e;
}

}  // namespace musetrace::megakernel
