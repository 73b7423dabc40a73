// The best tokens of rows of logits: each warp looks at a part of a row, and one block of each GPU puts the parts
// together. Higher scores first, of equal ones the lower token.
#pragma once

#include "megakernel/step/parts.cuh"

namespace musetrace::megakernel::step {

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

// What a search for the best tokens is stamped as.
struct SearchJobs {
    Job search, send, wait, merge;
};

// One warp: exp(score - top) over a part, added up.
template <class Score>
__device__ __forceinline__ double sum_of_part(std::uint32_t lane, const Share& share, float best, Score score) {
    const double top = best;
    double sum = 0;
#pragma unroll 2
    for (std::uint32_t at = share.begin + lane; at < share.end; at += kLanes) {
        sum += exp(static_cast<double>(score(at)) - top);
    }
    return sum_of_lanes(sum);
}

// All warps of all blocks: the parts of the rows from `first_row` on to all GPUs. `score(row, token of the model,
// logit)`; where it is long code, kEach is small. What a warp sends last is stamped, and so is its search until then.
template <bool kSum, std::uint32_t kEach, class W, class Score>
__device__ __forceinline__ void send_parts(W& w, const SearchJobs& jobs, std::uint32_t copy, std::uint32_t first_row,
                                           std::uint32_t count, Score score) {
    const std::uint32_t of_rank = parts_of_rank(w.params), items = (kTokens - first_row) * of_rank;
    const std::uint32_t vocab = w.shape().vocab, rank = w.params.first_rank + w.rank, first_token = rank * vocab;
    w.begin(jobs.search);
#pragma unroll 1
    for (std::uint32_t item = w.number(); item < items; item += w.warps()) {
        const std::uint32_t row = first_row + item / of_rank, part = item % of_rank;
        // Rows in front of the first are in the other kind of launch.
#pragma unroll 1
        for (std::uint32_t idle = row == first_row ? 0 : row; idle <= row; ++idle) {
            empty_parts(w, copy ^ 1u, idle, part);
        }
        const Share share = block_share(vocab, part, of_rank);
        const float* logits = w.params.rank[w.rank].logits + std::size_t{row} * vocab;
        const auto score_at = [&](std::uint32_t at) { return score(row, first_token + at, logits[at]); };
        Candidate best = best_of_part<kEach>(w.lane, share.begin, share.end, count, score_at);
        double sum = 0;
        if constexpr (kSum) sum = sum_of_part(w.lane, share, __shfl_sync(kAllLanes, best.score, 0), score_at);
        // Where no score is a number there is no best token; its embedding is read all the same.
        best.token = first_token + (best.token < vocab ? best.token : 0);
        const bool is_last = item + w.warps() >= items;
        if (is_last) w.next(jobs.search, jobs.send);
        send_part<kSum>(w, copy, row, rank * of_rank + part, count, best, sum);
        if (is_last) return w.end(jobs.send);
    }
    w.end(jobs.search);
}

// One warp: the best of all lanes' candidates, each lane's best first. Lane i gets the (i + 1)-th, i < count.
__device__ __forceinline__ Candidate best_of_lanes(std::uint32_t lane, std::uint32_t count,
                                                   Candidate (&own)[kMaxTopK]) {
    Candidate mine;
#pragma unroll 1
    for (std::uint32_t place = 0; place < count; ++place) {
        Candidate best;
        if (is_best(own[0], best)) {
#pragma unroll
            for (std::uint32_t i = 0; i + 1 < kMaxTopK; ++i) own[i] = own[i + 1];
            own[kMaxTopK - 1] = {};
        }
        if (lane == place) mine = best;
    }
    return mine;
}

// The block that merges: the best of each row into shared memory; with kSum as log-probabilities. The wait for the
// first row has a job of its own; later ones are waited for inside the merge.
template <bool kSum, class W>
__device__ __forceinline__ void merge_parts(W& w, const SearchJobs& jobs, std::uint32_t copy, std::uint32_t first_row,
                                            std::uint32_t count) {
    w.begin(jobs.wait);
#pragma unroll 1
    for (std::uint32_t row = first_row + w.warp; row < kTokens; row += kWarps) {
        Candidate own[kMaxTopK];
        double sum = 0;
        receive_parts<kSum>(w, jobs.wait.site, copy, row, count, own, sum);
        if (row == first_row + w.warp) w.next(jobs.wait, jobs.merge);
        const double part_top = own[0].score;
        Candidate mine = best_of_lanes(w.lane, count, own);
        if constexpr (kSum) {
            const double top = __shfl_sync(kAllLanes, mine.score, 0);
            // Of a lane without a part the sum is zero, and so is what it adds.
            const double total = sum_of_lanes(sum == 0 ? 0.0 : sum * exp(part_top - top));
            mine.score = static_cast<float>(static_cast<double>(mine.score) - (top + log(total)));
        }
        if (w.lane < count) {
            w.shared.score[row][w.lane] = mine.score;
            w.shared.token[row][w.lane] = mine.token;
        }
    }
    w.end(jobs.merge);
    if (w.lane == 0) w.shared.received[w.warp] = true;
    __syncthreads();
}

// Parts of all rows from `first_row` on, sent, and put together in one block of each GPU. `use()` is what its first
// warp makes of them; nothing is made where a wait was given up, so that the step can be run again. Tree and accept
// launches take turns with the copies of the parts.
template <bool kSum, std::uint32_t kEach, class W, class Score, class Use>
__device__ __forceinline__ void search(W& w, const SearchJobs& jobs, std::uint32_t first_row, std::uint32_t count,
                                       Score score, Use use) {
    const std::uint32_t copy = sync::GpuArch::load_relaxed(w.params.turn);
    const bool given_up_before = w.merges() && w.is_given_up();
    send_parts<kSum, kEach>(w, jobs, copy, first_row, count, score);
    if (!w.merges()) return;
    merge_parts<kSum>(w, jobs, copy, first_row, count);
    if (w.warp != 0) return;
    const bool received = w.lane >= kWarps || w.shared.received[w.lane];
    if (!__all_sync(kAllLanes, received) || given_up_before) return;
    if (w.lane == 0) *w.params.turn = copy ^ 1u;
    use();
}

}  // namespace musetrace::megakernel::step
