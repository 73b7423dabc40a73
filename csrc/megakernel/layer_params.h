// What a launch of the layer kernel gets: one struct, by value.
#pragma once

#include <cstdint>

#include "megakernel/exchange.h"
#include "megakernel/step_state.h"
#include "musetrace/abi/stamp.h"
#include "musetrace/abi/wait_report.h"

namespace musetrace::megakernel {

inline constexpr std::uint32_t kMaxRanks = 8;

// A rank's layer in device memory; matrices packed (fragment.h), vectors fp32, norms as 1 + w.
struct LayerWeights {
    const char* o;
    const char* pooler;
    const float* router;  // row-major
    const char* unpooler;
    const char* gate_up;  // [expert], tiles of 8 gate rows and their 8 up rows
    const char* down;     // [expert]
    const float* gate_up_factor;
    const float* down_factor;
    const float* router_bias;
    const float* pre_ffn_norm;
    const float* post_ffn_norm;
    const float* pre_expert_norm;
    const float* post_expert_norm;
    const float* attn_alpha;
    const float* attn_beta;
    const float* ffn_alpha;
    const float* ffn_beta;
};

// What comes behind the layer: the next one's projection, or the head's norm alone.
struct NextWeights {
    const char* qkvg;   // null behind the last layer
    const float* norm;  // input norm of the next layer, or the final norm
};

struct RankParams {
    LayerWeights layer;  // of an entry launch: ffn_alpha and ffn_beta alone, 1 and 0 for all columns
    NextWeights next;
    const float* residual;   // [token][hidden]
    float* next_residual;    // the other copy; a block may write it while another still reads `residual`
    float* middle_residual;  // behind attention; each thread reads what it wrote itself
    const std::uint16_t* q;  // bf16 [token][q_heads * 64]
    const std::uint16_t* gate;
    std::uint16_t* next_q;
    std::uint16_t* next_gate;
    const std::uint16_t* k;  // bf16 [kv_head][position][64]
    const std::uint16_t* v;  // bf16 [kv_head][64][position]
    std::uint16_t* next_k;
    std::uint16_t* next_v;
    char* exchange;       // this launch's copy
    char* idle_exchange;  // the other copy, made empty in this launch
    // Where to send: the exchange of each rank, here or in the memory of another GPU, and which rank's place there is
    // ours. Loopback sends to all places of its own exchange.
    char* peers[kMaxRanks];
    std::uint32_t places[kMaxRanks];
};

enum class LaunchKind : std::uint8_t {
    kEntry,  // embedded tokens in, first layer's qkv out
    kLayer,
};

struct LayerParams {
    Shape shape;
    std::uint32_t ranks;       // that run here, each on shape.blocks blocks; shape.ranks is how many share the model
    std::uint32_t first_rank;  // of those that run here, among all
    Plan plan;
    ExchangeLayout exchange;
    LaunchKind kind;
    Stop4 stop4;
    bool global_attention;  // of this layer
    bool bf16_experts;
    bool next_global_attention;  // no rotary embedding in the next layer
    bool programmatic;           // launched before the launch in front of it has ended
    std::uint32_t scale_factor;  // kScaleFactor, where the compiler does not see it
    std::uint32_t in_flight_bytes;
    std::uint64_t budget_ns;   // of a wait for another block
    std::uint32_t delay_seed;  // of the debug build
    // Fault injection: block `lost_block` of rank 0 ends before it sends its out-projection. No block by default.
    std::uint32_t lost_block;
    const StepState* state;
    const BlockShares* shares;  // [block]: worked out by the host, for a division is long code in every launch
    const float* rope;          // [position][32][2]: cosine, sine
    abi::WaitReport* report;    // in pinned memory
    std::uint32_t* abort;       // in device memory: every wait polls it
    char* stamps;               // region of the first rank here; null when not recorded
    std::uint32_t epoch;
    StampRow stamp_row;
    RankParams rank[kMaxRanks];
};
static_assert(sizeof(LayerParams) <= 4096, "kernel parameters");

// lm_head: logits of the normed residual stream.
struct HeadParams {
    Shape shape;
    std::uint32_t ranks;
    std::uint32_t first_rank;
    Plan plan;
    std::uint32_t in_flight_bytes;
    std::uint64_t budget_ns;
    bool programmatic;
    const StepState* state;
    abi::WaitReport* report;  // in pinned memory
    std::uint32_t* abort;     // in device memory: every wait polls it
    char* stamps;
    std::uint32_t epoch;
    StampRow stamp_row;
    struct {
        const char* lm_head;
        const char* x;   // bf16 by columns, hidden: the last launch's x5
        float* partial;  // [slice][token][padded vocab]
        float* logits;   // [token][vocab]
    } rank[kMaxRanks];
};

}  // namespace musetrace::megakernel
