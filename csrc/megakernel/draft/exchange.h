// A rank's receive buffers within a draft launch: all are slots (sync/slots.h), data that is its own flag. Two copies
// alternate from launch to launch.
//
// Why a copy may be used again: the argument of megakernel/exchange.h, with these sends behind the reset and its fence:
//   a layer: the sums of stop 2. Warps 1 to 3, which have made the block's part empty, give the outbox back at stop 1,
//   each behind its fence; the group fills it again behind that, and warps 1 to 3 send it.
//   the context: the sums of fc, the only ones. Each of the three sends its part when all have told of their fences.
#pragma once

#include <cstdint>

#include "megakernel/aligned_places.h"
#include "megakernel/draft/geometry.h"
#include "megakernel/exchange.h"

namespace musetrace::megakernel::draft {

inline constexpr std::uint32_t kPartFloats = part_floats(kHeadDim);

// Byte offsets within a copy. What is empty as all ones comes first, what is empty as +0 last.
struct DraftExchange {
    // Between the blocks of a rank.
    std::uint64_t attention;  // fp32 [q_heads][token][splits][kPartFloats]
    std::uint64_t heads;      // bf16 by columns, head_columns: attention output
    std::uint64_t sums1;      // fp32 [dense block][token], of squares
    std::uint64_t x1;         // bf16 by columns, hidden: input of gate and up, or the context
    std::uint64_t gate_up;    // fp32 [slice][token][row]
    std::uint64_t activated;  // bf16 by columns, inner
    std::uint64_t sums2;      // as sums1
    std::uint64_t x2;         // as x1: input of the next qkv or of lm_head
    std::uint64_t qkv;        // fp32 [slice][token][row]
    std::uint64_t context;    // fp32 [slice][token][row]
    // Between ranks.
    std::uint64_t partial1;  // bf16 sums [rank], by columns, hidden
    std::uint64_t partial2;
    std::uint64_t bytes;

    constexpr std::uint64_t ones_bytes() const { return partial1; }
};

constexpr DraftExchange make_exchange(const DraftSizes& s, const DraftPlan& plan) {
    constexpr std::uint64_t kToken = kTokens;
    AlignedPlaces places;
    DraftExchange e{};
    e.attention = places.take(kToken * s.q_heads * plan.splits * kPartFloats * 4);
    e.heads = places.take(kToken * s.head_columns() * 2);
    e.sums1 = places.take(kToken * plan.dense_blocks * 4);
    e.x1 = places.take(kToken * s.hidden * 2);
    e.gate_up = places.take(kToken * plan.slices * 2 * s.inner * 4);
    e.activated = places.take(kToken * s.inner * 2);
    e.sums2 = places.take(kToken * plan.dense_blocks * 4);
    e.x2 = places.take(kToken * s.hidden * 2);
    e.qkv = places.take(kToken * plan.slices * s.qkv_rows() * 4);
    e.context = places.take(kToken * plan.slices * s.context_rows() * 4);
    e.partial1 = places.take(kToken * s.ranks * s.hidden * 2);
    e.partial2 = places.take(kToken * s.ranks * s.hidden * 2);
    e.bytes = places.bytes();
    return e;
}

}  // namespace musetrace::megakernel::draft
