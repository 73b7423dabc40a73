// What the target chose behind each node, and the longest path of guesses that it chose too
// (musetrace/muse/speculative/accept.py, sampling.py).
#pragma once

#include "megakernel/step/best.cuh"

namespace musetrace::megakernel::step {

__device__ __forceinline__ std::uint64_t split_mix(std::uint64_t word) {
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
    word = (word ^ word >> 27) * 0x94D049BB133111EBu;
    return word ^ word >> 31;
}

// A standard Gumbel number that depends on these three alone.
__device__ __forceinline__ double gumbel(std::uint64_t seed, std::uint64_t position, std::uint64_t token) {
    constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;
    const std::uint64_t word = split_mix(split_mix(seed + kStep * (position + 1)) + kStep * (token + 1));
    const double uniform = (static_cast<double>(word >> 11) + 0.5) * 0x1p-53;
    return -log(-log(uniform));
}

// One warp; lane i has node i. Parents stand before their children, so one look at each node is enough.
template <class W>
__device__ __forceinline__ void walk(const W& w) {
    StepState& state = *w.params.state;
    const bool is_node = w.lane < kTokens;
    const std::uint32_t token = is_node ? state.tokens[w.lane] : 0, parent = is_node ? state.parents[w.lane] : 0;
    const std::uint32_t chosen = is_node ? w.shared.token[w.lane][0] : 0, position = state.position;
    const std::uint32_t wanted = __shfl_sync(kAllLanes, chosen, parent);
    const std::uint32_t right = __ballot_sync(kAllLanes, is_node && token == wanted);
    std::uint32_t last = 0, path = 1;
#pragma unroll
    for (std::uint32_t node = 1; node < kTokens; ++node) {
        const bool is_child = __shfl_sync(kAllLanes, parent, node) == last;
        if (is_child && (right >> node & 1u)) last = node, path |= 1u << node;
    }
    const std::uint32_t kept = __popc(path), bonus = __shfl_sync(kAllLanes, chosen, last);
    __syncwarp();
    if (path >> w.lane & 1u) {
        const std::uint32_t place = __popc(path & ((1u << w.lane) - 1));
        state.path[place] = w.lane;
        state.chosen[place] = chosen;
    }
    if (w.lane != 0) return;
    state.kept = kept;
    state.tokens[0] = bonus;
    state.position = position + kept;
}

template <class W>
__device__ __forceinline__ void accept(W& w) {
    const StepState& state = w.state();
    const SearchJobs jobs{step_job<MuseStep::accept_argmax>(), step_job<MuseStep::accept_send>(),
                          step_job<MuseStep::accept_wait_ranks>(), step_job<MuseStep::accept_choose>()};
    const auto follow = [&] { w.template job<MuseStep::accept_walk>([&] { walk(w); }); };
    const double temperature = state.temperature;
    if (temperature == 0) return search<false>(w, jobs, 0, 1, BestLogits{1}, follow);
    const std::uint64_t first_token = std::uint64_t{w.params.first_rank + w.rank} * w.shape().vocab;
    const auto best_of_noisy = [&](std::uint32_t row, const float* logits, std::uint32_t begin, std::uint32_t end) {
        Candidate own, best;
#pragma unroll 2
        for (std::uint32_t at = begin + w.lane; at < end; at += kLanes) {
            const double noise = gumbel(state.seed, state.position + state.depth[row] + 1, first_token + at);
            const auto score = static_cast<float>(static_cast<double>(logits[at]) / temperature + noise);
            if (score > own.score) own = {score, at};
        }
        is_best(own, best);
        return best;
    };
    search<false>(w, jobs, 0, 1, best_of_noisy, follow);
}

}  // namespace musetrace::megakernel::step
