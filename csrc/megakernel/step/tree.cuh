// The tree of the most probable prefixes, of the draft's logits: musetrace/muse/speculative/tree.py has the rule.
#pragma once

#include "megakernel/step/best.cuh"

namespace musetrace::megakernel::step {

// One warp. Lane i has node i, and the i-th prefix that was opened: each node but the root opens two at most, and the
// root one, so that there are 31.
template <class W>
__device__ __forceinline__ void build_tree(const W& w, std::uint32_t top_k) {
    static_assert(2 * (kTokens - 1) + 1 <= kLanes);
    const auto& score = w.shared.score;
    struct {
        float joint;
        std::uint32_t parent, place;
    } open{w.lane == 0 ? score[1][0] : -INFINITY, 0, 0};
    bool is_open = w.lane == 0;
    std::uint32_t opened = 1, token = 0, parent = 0, depth = 0, sees = 1;
    float joint = 0.0f;
#pragma unroll 1
    for (std::uint32_t node = 1; node < kTokens; ++node) {
        // Of equal ones the first that was opened.
        const std::uint32_t key = is_open ? ordered(open.joint) : 0, top = __reduce_max_sync(kAllLanes, key);
        const std::uint32_t best = __ffs(__ballot_sync(kAllLanes, is_open && key == top)) - 1;
        if (w.lane == best) is_open = false;
        const std::uint32_t behind = __shfl_sync(kAllLanes, open.parent, best);
        const std::uint32_t place = __shfl_sync(kAllLanes, open.place, best);
        const float taken = __shfl_sync(kAllLanes, open.joint, best);
        const float before = __shfl_sync(kAllLanes, joint, behind);
        const std::uint32_t row = __shfl_sync(kAllLanes, depth, behind) + 1;
        const std::uint32_t seen = __shfl_sync(kAllLanes, sees, behind);
        if (w.lane == node) {
            token = w.shared.token[row][place];
            parent = behind, depth = row, joint = taken, sees = seen | 1u << node;
        }
        // Its first child, and its next sibling.
        const bool has_child = row + 1 < kTokens, has_sibling = place + 1 < top_k;
        if (has_child && w.lane == opened) open = {taken + score[row + 1][0], node, 0}, is_open = true;
        opened += has_child;
        if (has_sibling && w.lane == opened) open = {before + score[row][place + 1], behind, place + 1}, is_open = true;
        opened += has_sibling;
    }
    StepState& state = *w.params.state;
    if (w.lane >= kTokens) return;
    if (w.lane != 0) state.tokens[w.lane] = token;
    state.parents[w.lane] = parent;
    state.depth[w.lane] = static_cast<std::uint8_t>(depth);
    state.sees[w.lane] = static_cast<std::uint16_t>(sees);
}

template <class W>
__device__ __forceinline__ void make_tree(W& w) {
    const std::uint32_t top_k = w.state().top_k;
    const SearchJobs jobs{step_job<MuseStep::tree_topk>(), step_job<MuseStep::tree_send>(),
                          step_job<MuseStep::tree_wait_ranks>(), step_job<MuseStep::tree_merge>()};
    // Row 0 of a draft pass is the root's own.
    search<true>(w, jobs, 1, top_k, BestLogits{top_k},
                 [&] { w.template job<MuseStep::tree_build>([&] { build_tree(w, top_k); }); });
}

}  // namespace musetrace::megakernel::step
