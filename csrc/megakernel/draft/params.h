// What a launch of the draft kernel gets: one struct, by value.
#pragma once

#include <cstdint>

#include "megakernel/draft/exchange.h"
#include "megakernel/layer_params.h"

namespace musetrace::megakernel::draft {

// A rank's layer in device memory; matrices packed (fragment.h), vectors fp32.
struct DraftLayerWeights {
    const char* qkv;  // heads of q, k, v
    const char* o;
    const char* gate_up;  // rows gate j, up j
    const char* down;
    const float* input_norm;
    const float* mlp_norm;
    const float* q_norm;  // [kHeadDim]
    const float* k_norm;
};

// A layer's cache: bf16 [kv_head][position][kHeadDim] and [kv_head][kHeadDim][position].
struct DraftCache {
    std::uint16_t* k;
    std::uint16_t* v;
};

// What a context launch needs of all layers, in device memory.
struct ContextTable {
    struct {
        const char* qkv;
        const float* k_norm;
        DraftCache cache;
    } layers[kMaxLayers];
    const float* features[kMaxLayers];  // fp32 [row][hidden] of the target's layers, as the last verify pass left them
};

struct DraftRank {
    const char* first;    // o, or fc of a context launch
    const char* gate_up;  // of a layer
    const char* down;     // of a layer
    const char* qkv;      // of the next layer; null behind the last
    const float* norm1;   // mlp_norm, or the context's
    const float* norm2;   // the next layer's input norm, or that behind the last
    const float* q_norm;  // of the next layer
    const float* k_norm;
    const std::uint16_t* embedding;  // bf16 [token][hidden], of a context launch
    const ContextTable* context;
    float* residual;         // [row][hidden]; each thread reads what it wrote itself
    const std::uint16_t* q;  // bf16 [row][head_columns]
    std::uint16_t* next_q;   // the other copy
    DraftCache cache, next_cache;
    char* exchange;       // this launch's copy
    char* idle_exchange;  // the other copy, made empty in this launch
    char* peers[kMaxRanks];
    std::uint32_t places[kMaxRanks];
};

// A wait report of a draft launch counts its rank from here on: its site is a job of the draft's table.
inline constexpr std::uint32_t kReportedRank = 1u << 16;

enum class DraftKind : std::uint8_t { kContext, kLayer };

struct DraftParams {
    DraftSizes shape;
    std::uint32_t ranks;       // that run here, each on shape.blocks blocks; shape.ranks is how many share the model
    std::uint32_t first_rank;  // of those that run here, among all
    DraftPlan plan;
    DraftExchange exchange;
    DraftKind kind;
    bool programmatic;  // launched before the launch in front of it has ended
    std::uint32_t mask_token;
    std::uint32_t in_flight_bytes;
    std::uint64_t budget_ns;   // of a wait for another block
    std::uint32_t delay_seed;  // of the debug build
    const StepState* state;
    const DraftShares* shares;  // [block]
    const float* rope;          // [position][kHeadDim / 2][2]: cosine, sine
    abi::WaitReport* report;    // in pinned memory
    std::uint32_t* abort;       // in device memory: every wait polls it
    char* stamps;               // region of the first rank here; null when not recorded
    std::uint32_t epoch;
    StampRow stamp_row;
    DraftRank rank[kMaxRanks];
};
static_assert(sizeof(DraftParams) <= 4096, "kernel parameters");

}  // namespace musetrace::megakernel::draft
