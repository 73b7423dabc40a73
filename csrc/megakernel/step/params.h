// What a launch between draft and verify, or behind verify, gets: one struct, by value.
#pragma once

#include <cstdint>

#include "megakernel/layer_params.h"
#include "megakernel/step/parts.h"

namespace musetrace::megakernel::step {

struct KvRows {
    std::uint16_t* k;  // bf16 [kv_head][position][64]
    std::uint16_t* v;  // bf16 [kv_head][64][position]
};

// A wait report of a step launch counts its rank from here on: its site is a job of the step's table.
inline constexpr std::uint32_t kReportedRank = 1u << 17;

enum class StepKind : std::uint8_t {
    kTree,    // logits of the draft in, the tree in the state out
    kEmbed,   // the tree's tokens as the residual stream of an entry launch
    kAccept,  // logits of the verify pass in, the next step's state out
    kKeep,    // the accepted rows of the KV cache moved together
};

struct StepParams {
    Shape shape;
    std::uint32_t ranks;       // that run here, each on shape.blocks blocks
    std::uint32_t first_rank;  // of those that run here, among all
    std::uint32_t sharing;     // ranks that the vocabulary is cut between: all of the model, or one in loopback
    StepKind kind;
    bool programmatic;         // launched before the launch in front of it has ended
    std::uint64_t budget_ns;   // of a wait for another block
    std::uint32_t delay_seed;  // of the debug build
    StepState* state;
    const std::uint16_t* embedding;   // bf16 [token][hidden]
    std::uint32_t gpus;               // that share the model
    std::uint64_t* parts[kMaxRanks];  // [gpu], both copies of each; this one's own first
    std::uint32_t* turn;              // the copy of this launch, in device memory
    abi::WaitReport* report;          // in pinned memory
    std::uint32_t* abort;             // in device memory: every wait polls it
    char* stamps;                     // region of the first rank here; null when not recorded
    std::uint32_t epoch;
    StampRow stamp_row;
    struct {
        const float* logits;  // [row][vocab]
        float* residual;      // [row][hidden]
        const KvRows* kv;     // [layer], in device memory
    } rank[kMaxRanks];
};
static_assert(sizeof(StepParams) <= 4096, "kernel parameters");
static_assert(kParts >= kMaxRanks, "a rank has at least one part of each row");

// How many parts a rank's logits of a row have.
constexpr std::uint32_t parts_of_rank(const StepParams& p) { return kParts / p.sharing; }

}  // namespace musetrace::megakernel::step
