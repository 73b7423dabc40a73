// The best tokens of rows of logits: each warp looks at a part of a row, and the last block of all puts the parts
// together. Higher scores first, of equal ones the lower token.
#pragma once

#include "megakernel/step/block.cuh"

namespace musetrace::megakernel::step {

struct Candidate {
    float score = -INFINITY;
    std::uint32_t token = 0xFFFFFFFF;
};

// Unsigned numbers in the order of floats.
__device__ __forceinline__ std::uint32_t ordered(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    return bits ^ (static_cast<std::int32_t>(bits) < 0 ? 0xFFFFFFFFu : 0x80000000u);
}

// The best of the lanes' candidates, and whether it is this lane's.
__device__ __forceinline__ bool is_best(const Candidate& own, Candidate& best) {
    const std::uint32_t key = ordered(own.score), top = __reduce_max_sync(kAllLanes, key);
    const std::uint32_t token = __reduce_min_sync(kAllLanes, key == top ? own.token : 0xFFFFFFFF);
    const std::uint32_t owner = __ffs(__ballot_sync(kAllLanes, key == top && own.token == token)) - 1;
    best = {__shfl_sync(kAllLanes, own.score, owner), token};
    return owner == sync::lane_id();
}

// Lane i gets the (i + 1)-th best of `score(i)` for i in [begin, end), i < count. A lane has kEach scores at a time.
template <std::uint32_t kEach, class Score>
__device__ __forceinline__ Candidate best_of_part(std::uint32_t lane, std::uint32_t begin, std::uint32_t end,
                                                  std::uint32_t count, Score score) {
    Candidate list;
#pragma unroll 1
    for (std::uint32_t first = begin + lane; first - lane < end; first += kEach * kLanes) {
        float values[kEach];
#pragma unroll
        for (std::uint32_t i = 0; i < kEach; ++i) {
            const std::uint32_t at = first + i * kLanes;
            values[i] = at < end ? score(at) : -INFINITY;
        }
        Candidate next;
#pragma unroll 1
        for (std::uint32_t place = 0; place < count; ++place) {
            // What is on the list has lower tokens than all that is new.
            Candidate own = list;
            std::uint32_t which = kEach;
#pragma unroll
            for (std::uint32_t i = 0; i < kEach; ++i) {
                if (values[i] > own.score) own.score = values[i], which = i;
            }
            if (which < kEach) own.token = first + which * kLanes;
            Candidate best;
            if (is_best(own, best)) {
                if (which == kEach) list.score = -INFINITY;
#pragma unroll
                for (std::uint32_t i = 0; i < kEach; ++i) {
                    if (i == which) values[i] = -INFINITY;
                }
            }
            if (lane == place) next = best;
        }
        list = next;
    }
    return list;
}

__device__ __forceinline__ double sum_of_lanes(double value) {
#pragma unroll
    for (std::uint32_t step = 1; step < kLanes; step *= 2) value += __shfl_xor_sync(kAllLanes, value, step);
    return value;
}

// All warps of all blocks: the parts of the rows from `first_row` on. `score(row, token of the model, logit)`; where it
// is long code, kEach is small.
template <bool kSum, std::uint32_t kEach, class W, class Score>
__device__ __forceinline__ void write_parts(const W& w, std::uint32_t first_row, std::uint32_t count, Score score) {
    const std::uint32_t of_rank = parts_of_rank(w.params), items = (kTokens - first_row) * of_rank;
    const std::uint32_t vocab = w.shape().vocab, first_token = w.rank * vocab;
#pragma unroll 1
    for (std::uint32_t item = w.number(); item < items; item += w.warps()) {
        const std::uint32_t row = first_row + item / of_rank, part = item % of_rank;
        const Share share = block_share(vocab, part, of_rank);
        const float* logits = w.params.rank[w.rank].logits + std::size_t{row} * vocab;
        const auto score_at = [&](std::uint32_t at) { return score(row, first_token + at, logits[at]); };
        const Candidate best = best_of_part<kEach>(w.lane, share.begin, share.end, count, score_at);
        Part& to = w.params.parts[row * kParts + w.rank * of_rank + part];
        if (w.lane < kMaxTopK) {
            to.score[w.lane] = best.score;
            to.token[w.lane] = first_token + best.token;
        }
        if constexpr (kSum) {
            const double top = __shfl_sync(kAllLanes, best.score, 0);
            double sum = 0;
#pragma unroll 2
            for (std::uint32_t at = share.begin + w.lane; at < share.end; at += kLanes) {
                sum += exp(static_cast<double>(score_at(at)) - top);
            }
            sum = sum_of_lanes(sum);
            if (w.lane == 0) to.sum = sum;
        }
    }
}

// The last block: the best of each row into shared memory; with kSum as log-probabilities.
template <bool kSum, class W>
__device__ __forceinline__ void merge_parts(const W& w, std::uint32_t first_row, std::uint32_t count) {
    const bool is_part = w.lane < w.params.ranks * parts_of_rank(w.params);
#pragma unroll 1
    for (std::uint32_t row = first_row + w.warp; row < kTokens; row += kWarps) {
        const Part& from = w.params.parts[row * kParts + w.lane];
        Candidate own[kMaxTopK + 1];
#pragma unroll
        for (std::uint32_t place = 0; place < kMaxTopK; ++place) {
            if (is_part && place < count) own[place] = {__ldcg(&from.score[place]), __ldcg(&from.token[place])};
        }
        const double part_top = own[0].score, sum = kSum && is_part ? __ldcg(&from.sum) : 0.0;
        Candidate mine;
#pragma unroll 1
        for (std::uint32_t place = 0; place < count; ++place) {
            Candidate best;
            if (is_best(own[0], best)) {
#pragma unroll
                for (std::uint32_t i = 0; i < kMaxTopK; ++i) own[i] = own[i + 1];
            }
            if (w.lane == place) mine = best;
        }
        if constexpr (kSum) {
            const double top = __shfl_sync(kAllLanes, mine.score, 0);
            const double total = sum_of_lanes(is_part ? sum * exp(part_top - top) : 0.0);
            mine.score = static_cast<float>(static_cast<double>(mine.score) - (top + log(total)));
        }
        if (w.lane < count) {
            w.shared.score[row][w.lane] = mine.score;
            w.shared.token[row][w.lane] = mine.token;
        }
    }
    __syncthreads();
}

}  // namespace musetrace::megakernel::step
