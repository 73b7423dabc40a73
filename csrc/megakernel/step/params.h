// What a launch between draft and verify, or behind verify, gets: one struct, by value.
#pragma once

#include <cstdint>

#include "megakernel/layer_params.h"

namespace musetrace::megakernel::step {

// Parts of a row of logits that are looked at apart: one for each lane of the warp that puts them together.
inline constexpr std::uint32_t kParts = 32;

// The best of a part, best first, and what the row's normaliser needs of it.
struct alignas(16) Part {
    float score[kMaxTopK];
    std::uint32_t token[kMaxTopK];
    double sum;  // of exp(score - score[0])
};

struct KvRows {
    std::uint16_t* k;  // bf16 [kv_head][position][64]
    std::uint16_t* v;  // bf16 [kv_head][64][position]
};

enum class StepKind : std::uint8_t {
    kTree,    // logits of the draft in, the tree in the state out
    kEmbed,   // the tree's tokens as the residual stream of an entry launch
    kAccept,  // logits of the verify pass in, the next step's state out
    kKeep,    // the accepted rows of the KV cache moved together
};

struct StepParams {
    Shape shape;
    std::uint32_t ranks;  // that run here, each on shape.blocks blocks: all of the model, or one in loopback
    StepKind kind;
    bool programmatic;  // launched before the launch in front of it has ended
    StepState* state;
    const std::uint16_t* embedding;  // bf16 [token][hidden]
    Part* parts;                     // [row][kParts]
    std::uint32_t* arrived;          // blocks that have written their parts; 0 between launches
    char* stamps;                    // region of the first rank here; null when not recorded
    std::uint32_t epoch;
    StampRow stamp_row;
    struct {
        const float* logits;  // [row][vocab]
        float* residual;      // [row][hidden]
        const KvRows* kv;     // [layer], in device memory
    } rank[kMaxRanks];
};

// How many parts a rank's logits of a row have.
constexpr std::uint32_t parts_of_rank(const StepParams& p) { return kParts / p.ranks; }

}  // namespace musetrace::megakernel::step
