// What the kernels of the baseline chain get: one struct, by value. The chain is the layer of the megakernel as
// ordinary kernels, one for each op: the same packed weights (megakernel/fragment.h), the same order of activations
// (megakernel/geometry.h), the same KV cache, the same places where it rounds. It is what the megakernel has to beat.
//
// Its 16 rows are tokens of one sequence, or of up to 16 (BatchRows): then each of them has a cache of its own, and the
// other kernels do not know of it. It runs one rank. With several, peers are played by the rank itself (loopback): what
// it would send to all of them it writes to all of their places in its own memory.
#pragma once

#include <cstdint>

#include "megakernel/aligned_places.h"
#include "megakernel/layer_params.h"

namespace musetrace::baseline {

// Of the experts' work, made by the kernel that routes (megakernel/geometry.h says what an item is).
struct WorkItem {
    std::uint16_t expert;
    std::uint8_t first;  // in `pairs`
    std::uint8_t count;  // 1 to kExpertTokens
};
struct WorkList {
    std::uint32_t item_count;
    WorkItem items[megakernel::kMaxPairs];
    std::uint8_t pairs[megakernel::kMaxPairs];  // sorted by expert, then token
    float weights[megakernel::kMaxPairs];       // [token][place], places by ascending expert
};
static_assert(sizeof(WorkList) % 4 == 0);

// Byte offsets of what one kernel leaves for a later one. Nothing has to be cleared: all that is read was written
// before in the same chain.
struct ScratchLayout {
    std::uint64_t attention;     // fp32 [q_heads][token][splits][kPartFloats]
    std::uint64_t heads;         // bf16 by columns, q_heads * 64: gated attention output
    std::uint64_t partial;       // bf16 by columns, hidden: the rank's part of an all-reduce
    std::uint64_t received;      // [rank], as `partial`; with several ranks
    std::uint64_t x;             // bf16 by columns, hidden: what pooler, qkv and lm_head read
    std::uint64_t middle;        // fp32 [token][hidden]: residual behind attention
    std::uint64_t pool;          // fp32 [slice][token][pooled row]
    std::uint64_t router;        // fp32 [slice][router row][token]
    std::uint64_t pooled;        // bf16 by rows [token], moe_hidden
    std::uint64_t logits;        // fp32 [token][expert], of the router
    std::uint64_t expert_x;      // bf16 by rows [token], moe_hidden: normed
    std::uint64_t list;          // WorkList
    std::uint64_t own_features;  // bf16 by rows [pair], features of the rank
    std::uint64_t features;      // bf16 by rows [pair], intermediate; with one rank the same place
    std::uint64_t outputs;       // bf16 by rows [pair], pooled_rows
    std::uint64_t own_squares;   // fp32 [pair][tile of GEMM 2]
    std::uint64_t squares;       // fp32 [rank][pair][tile of GEMM 2]; with one rank the same place
    std::uint64_t combined;      // bf16 by columns, pooled_rows
    std::uint64_t qkv;           // fp32 [slice][token][row]
    std::uint64_t head;          // fp32 [slice][token][row of whole tiles]
    std::uint64_t bytes;
};

constexpr std::uint32_t padded_vocab(const Shape& s) {
    return megakernel::ceil_div(s.vocab, megakernel::kTileRows) * megakernel::kTileRows;
}

constexpr ScratchLayout make_scratch(const Shape& s) {
    constexpr std::uint64_t kToken = kTokens;
    const megakernel::Plan plan = megakernel::make_plan(s);
    const bool peers = s.ranks > 1;
    megakernel::AlignedPlaces places;
    ScratchLayout at{};
    at.attention = places.take(kToken * s.q_heads * plan.splits * megakernel::kPartFloats * 4);
    at.heads = places.take(kToken * s.head_columns() * 2);
    at.partial = places.take(kToken * s.hidden * 2);
    at.received = peers ? places.take(kToken * s.ranks * s.hidden * 2) : at.partial;
    at.x = places.take(kToken * s.hidden * 2);
    at.middle = places.take(kToken * s.hidden * 4);
    at.pool = places.take(kToken * plan.pool_slices * s.pooled_rows() * 4);
    at.router = places.take(kToken * plan.pool_slices * s.router_rows() * 4);
    at.pooled = places.take(kToken * s.moe_hidden * 2);
    at.logits = places.take(kToken * s.experts * 4);
    at.expert_x = places.take(kToken * s.moe_hidden * 2);
    at.list = places.take(sizeof(WorkList));
    at.own_features = places.take(std::uint64_t{s.pairs()} * s.features() * 2);
    at.features = peers ? places.take(std::uint64_t{s.pairs()} * s.intermediate * 2) : at.own_features;
    at.outputs = places.take(std::uint64_t{s.pairs()} * s.pooled_rows() * 2);
    const std::uint64_t squares = std::uint64_t{s.pairs()} * megakernel::ExpertTiles(s).gemm2 * 4;
    at.own_squares = places.take(squares);
    at.squares = peers ? places.take(s.ranks * squares) : at.own_squares;
    at.combined = places.take(kToken * s.pooled_rows() * 2);
    at.qkv = places.take(kToken * plan.qkv_slices * s.qkv_units() * s.head_dim * 4);
    at.head = places.take(kToken * plan.head_slices * padded_vocab(s) * 4);
    at.bytes = places.bytes();
    return at;
}

// Whose each row of a pass is and where it stands. Two rows of a sequence at one position have to hold the same token:
// so a pass of fewer rows is filled up.
struct BatchRows {
    std::uint32_t sequence[kTokens];
    std::uint32_t position[kTokens];
};

struct ChainParams {
    Shape shape;
    megakernel::Plan plan;
    ScratchLayout at;
    megakernel::LayerWeights layer;
    megakernel::NextWeights next;
    const char* lm_head;
    bool global_attention;  // of this layer
    bool bf16_experts;
    bool next_global_attention;  // no rotary embedding in the next layer
    std::uint32_t scale_factor;  // kScaleFactor, where the compiler does not see it
    std::uint64_t budget_ns;     // of a wait for a bulk copy
    const float* residual;       // [token][hidden]
    float* next_residual;        // may be `residual`
    const std::uint16_t* q;      // bf16 [token][q_heads * 64]
    const std::uint16_t* gate;
    std::uint16_t* next_q;  // may be `q`
    std::uint16_t* next_gate;
    const std::uint16_t* k;  // bf16 [sequence][kv_head][position][64]
    const std::uint16_t* v;  // bf16 [sequence][kv_head][64][position]
    std::uint16_t* next_k;
    std::uint16_t* next_v;
    float* logits;  // [token][vocab]
    char* scratch;
    const megakernel::StepState* state;
    const BatchRows* rows;    // null: 16 rows of one sequence, from the state's position on
    std::uint32_t sequences;  // of `rows`
    const float* rope;        // [position][32][2]: cosine, sine
    abi::WaitReport* report;

    // Numbers of a layer's keys, or values, in front of those of a sequence.
    constexpr std::size_t cache_of(std::uint32_t sequence) const {
        return std::size_t{sequence} * shape.kv_heads * shape.capacity * shape.head_dim;
    }
};
static_assert(sizeof(ChainParams) <= 4000, "kernel parameters");

// A block of the norm kernels has 1024 columns of a token's row, a cluster of at most 8 blocks the row.
inline constexpr std::uint32_t kMaxHidden = 8192;
inline constexpr std::uint32_t kMaxHeadSlice = 2048;

// Sizes that the chain can run; what is wrong, or null.
constexpr const char* unsupported_chain(const Shape& s, bool loopback) {
    if (s.ranks == 0 || s.ranks > megakernel::kMaxRanks) return "ranks must be 1 to 8";
    if (s.blocks == 0 || s.blocks > 1024) return "blocks must be 1 to 1024";
    if (s.layers == 0 || s.layers > 1024) return "layers must be 1 to 1024";
    if (s.ranks > 1 && !loopback) return "the chain runs one rank at a time: use one rank, or loopback";
    if (s.q_heads == 0 || s.kv_heads == 0 || s.q_heads % s.kv_heads != 0)
        return "query heads must share KV heads evenly";
    if (const char* reason = megakernel::unsupported(s)) return reason;
    if (s.hidden > kMaxHidden) return "hidden must be at most 8192";
    if (s.hidden / megakernel::make_plan(s).head_slices > kMaxHeadSlice)
        return "too few blocks for the width of lm_head";
    return nullptr;
}

}  // namespace musetrace::baseline
