// The best tokens of rows of logits: each block looks at a part of a row, each of its warps at a part of that, and one
// block of each GPU puts the blocks' parts together. Higher scores first, of equal ones the lower token.
//
// Nothing here is large: a launch of this runs once a step, when its code has left all caches but HBM.
#pragma once

#include "megakernel/step/parts.cuh"

namespace musetrace::megakernel::step {

// Unsigned numbers in the order of floats.
__device__ __forceinline__ std::uint32_t ordered(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    return bits ^ (static_cast<std::int32_t>(bits) < 0 ? 0xFFFFFFFFu : 0x80000000u);
}

__device__ __forceinline__ float value_of(std::uint32_t ordered) {
    return __uint_as_float(ordered ^ (static_cast<std::int32_t>(ordered) < 0 ? 0x80000000u : 0xFFFFFFFFu));
}

// The best of the lanes' candidates, and whether it is this lane's.
__device__ __forceinline__ bool is_best(const Candidate& own, Candidate& best) {
    const std::uint32_t key = ordered(own.score), top = __reduce_max_sync(kAllLanes, key);
    const std::uint32_t token = __reduce_min_sync(kAllLanes, key == top ? own.token : 0xFFFFFFFF);
    best = {value_of(top), token};
    return key == top && own.token == token;
}

// The warp: lane i gets the (i + 1)-th best of scores[begin] to scores[end - 1], i < count, with its place as token. A
// lane has kEach scores at a time: those of a warp of the model's logits on a whole GPU.
static __device__ __noinline__ Candidate best_of(const float* scores, std::uint32_t begin, std::uint32_t end,
                                                 std::uint32_t count) {
    constexpr std::uint32_t kEach = 9;
    const std::uint32_t lane = sync::lane_id();
    Candidate list;
#pragma unroll 1
    for (std::uint32_t first = begin + lane; first - lane < end; first += kEach * kLanes) {
        float values[kEach];
#pragma unroll
        for (std::uint32_t i = 0; i < kEach; ++i) values[i] = scores[min(first + i * kLanes, end - 1)] + 0.0f;
#pragma unroll
        for (std::uint32_t i = 0; i < kEach; ++i) values[i] = first + i * kLanes < end ? values[i] : -INFINITY;
        Candidate next;
#pragma unroll 1
        for (std::uint32_t place = 0; place < count; ++place) {
            // What is on the list has lower tokens than all that is new.
            float most = list.score;
#pragma unroll
            for (std::uint32_t i = 0; i < kEach; ++i) most = fmaxf(most, values[i]);
            std::uint32_t which = kEach;
#pragma unroll
            for (std::uint32_t i = kEach; i-- != 0;) {
                if (values[i] == most) which = i;
            }
            if (list.score == most) which = kEach;
            const Candidate own{most, which == kEach ? list.token : first + which * kLanes};
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

// e^x for x <= 0, to 1e-14, without branches: several of them are worked out side by side. e^-700 is nothing.
__device__ __forceinline__ double exp_of(double x) {
    constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: what is added to it is rounded
    x = fmax(x, -700.0);
    const double shifted = fma(x, 1.4426950408889634, kShift), power = shifted - kShift;
    const double rest = fma(power, -2.3190468138462996e-17, fma(power, -6.931471805599453e-1, x));
    double sum = 1.0 / 39916800;
#pragma unroll
    for (const double factor : {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                                1.0 / 6, 0.5, 1.0, 1.0}) {
        sum = fma(sum, rest, factor);
    }
    const std::uint32_t exponent = static_cast<std::uint32_t>(__double2loint(shifted)) << 20;
    return __hiloint2double(static_cast<int>(__double2hiint(sum) + exponent), __double2loint(sum));
}

__device__ __forceinline__ double sum_of_lanes(double value) {
#pragma unroll
    for (std::uint32_t step = 1; step < kLanes; step *= 2) value += __shfl_xor_sync(kAllLanes, value, step);
    return value;
}

// The warp: of exp(score - top) for scores[begin] to scores[end - 1].
__device__ __forceinline__ double sum_of_exp(const float* scores, std::uint32_t begin, std::uint32_t end, double top) {
    constexpr std::uint32_t kEach = 3;
    const std::uint32_t lane = sync::lane_id();
    double sums[kEach] = {};
#pragma unroll 1
    for (std::uint32_t first = begin + lane; first - lane < end; first += kEach * kLanes) {
#pragma unroll
        for (std::uint32_t i = 0; i < kEach; ++i) {
            const std::uint32_t at = first + i * kLanes;
            const double term = exp_of(static_cast<double>(scores[min(at, end - 1)]) - top);
            sums[i] += at < end ? term : 0.0;
        }
    }
    double sum = 0;
#pragma unroll
    for (const double own : sums) sum += own;
    return sum_of_lanes(sum);
}

// What a search for the best tokens is stamped as.
struct SearchJobs {
    Job search, send, wait, merge;
};

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

// The block: its part of a row, and of a rank, put together of what the warps have found, which the first warp gets.
template <bool kSum, class W, class Best>
__device__ __forceinline__ Candidate best_of_block(W& w, std::uint32_t row, const float* logits, const Share& part,
                                                   std::uint32_t count, Best best, double& sum) {
    const Share share = block_share(part.size(), w.warp, kWarps);
    const std::uint32_t begin = part.begin + share.begin, end = part.begin + share.end;
    const Candidate found = best(row, logits, begin, end);
    const double top = __shfl_sync(kAllLanes, found.score, 0);
    if (w.lane < kMaxTopK) w.shared.found[w.warp][w.lane] = found;
    if constexpr (kSum) {
        const double of_warp = sum_of_exp(logits, begin, end, top);
        if (w.lane == 0) w.shared.exponentials[w.warp] = of_warp;
    }
    __syncthreads();
    Candidate of_block;
    if (w.warp == 0) {
        const std::uint32_t warp = min(w.lane, kWarps - 1);
        Candidate own[kMaxTopK];
#pragma unroll
        for (std::uint32_t i = 0; i < kMaxTopK; ++i) own[i] = w.lane < kWarps ? w.shared.found[warp][i] : Candidate{};
        const double own_top = own[0].score;
        of_block = best_of_lanes(w.lane, count, own);
        if constexpr (kSum) {
            const double most = __shfl_sync(kAllLanes, of_block.score, 0);
            sum = sum_of_lanes(w.lane < kWarps ? w.shared.exponentials[warp] * exp_of(own_top - most) : 0.0);
        }
    }
    __syncthreads();
    return of_block;
}

// All blocks: the parts of the rows from `first_row` on to all GPUs. `best(row, logits, begin, end)` is a warp's: the
// best of logits[begin] to logits[end - 1], by their places. What a block sends last is stamped, and so is its search
// until then.
template <bool kSum, class W, class Best>
__device__ __forceinline__ void send_parts(W& w, const SearchJobs& jobs, std::uint32_t copy, std::uint32_t first_row,
                                           std::uint32_t count, Best best) {
    const std::uint32_t of_rank = parts_of_rank(w.params), items = (kTokens - first_row) * of_rank;
    const std::uint32_t vocab = w.shape().vocab, blocks = w.shape().blocks, rank = w.params.first_rank + w.rank;
    w.begin(jobs.search);
#pragma unroll 1
    for (std::uint32_t item = w.block(); item < items; item += blocks) {
        const std::uint32_t row = first_row + item / of_rank, part = item % of_rank;
        // Rows in front of the first are in the other kind of launch.
#pragma unroll 1
        for (std::uint32_t idle = row == first_row ? 0 : row; w.warp == 0 && idle <= row; ++idle) {
            empty_parts(w, copy ^ 1u, idle, part);
        }
        const float* logits = w.params.rank[w.rank].logits + std::size_t{row} * vocab;
        double sum = 0;
        Candidate found = best_of_block<kSum>(w, row, logits, block_share(vocab, part, of_rank), count, best, sum);
        if (w.warp != 0) continue;
        // Where no score is a number there is no best token; its embedding is read all the same.
        found.token = rank * vocab + (found.token < vocab ? found.token : 0);
        const bool is_last = item + blocks >= items;
        if (is_last) w.next(jobs.search, jobs.send);
        send_part<kSum>(w, copy, row, rank * of_rank + part, count, found, sum);
        if (is_last) return w.end(jobs.send);
    }
    w.end(jobs.search);
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
            const double total = sum_of_lanes(sum * exp_of(part_top - top));
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

// For search(): of the logits as they are.
struct BestLogits {
    std::uint32_t count;
    __device__ __forceinline__ Candidate operator()(std::uint32_t, const float* logits, std::uint32_t begin,
                                                    std::uint32_t end) const {
        return best_of(logits, begin, end, count);
    }
};

// Parts of all rows from `first_row` on, sent, and put together in one block of each GPU. `use()` is what its first
// warp makes of them; nothing is made where a wait was given up, so that the step can be run again. Tree and accept
// launches take turns with the copies of the parts.
template <bool kSum, class W, class Best, class Use>
__device__ __forceinline__ void search(W& w, const SearchJobs& jobs, std::uint32_t first_row, std::uint32_t count,
                                       Best best, Use use) {
    const std::uint32_t copy = sync::GpuArch::load_relaxed(w.params.turn);
    const bool given_up_before = w.merges() && w.is_given_up();
    send_parts<kSum>(w, jobs, copy, first_row, count, best);
    if (!w.merges()) return;
    merge_parts<kSum>(w, jobs, copy, first_row, count);
    if (w.warp != 0) return;
    const bool received = w.lane >= kWarps || w.shared.received[w.lane];
    if (!__all_sync(kAllLanes, received) || given_up_before) return;
    if (w.lane == 0) *w.params.turn = copy ^ 1u;
    use();
}

}  // namespace musetrace::megakernel::step
