// Parts on their way between warps and GPUs: parts.h says what they are, and why a copy may be used again.
#pragma once

#include "megakernel/step/block.cuh"

namespace musetrace::megakernel::step {

__device__ __forceinline__ void send_word(std::uint64_t* slot, std::uint64_t word) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(slot), "l"(word) : "memory");
}
__device__ __forceinline__ std::uint64_t load_word(const std::uint64_t* slot) {
    std::uint64_t word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(slot) : "memory");
    return word;
}

// One warp, in front of the block's part of a row: its share of the row in the copy that is not used.
template <class W>
__device__ __forceinline__ void empty_parts(const W& w, std::uint32_t idle, std::uint32_t row, std::uint32_t part) {
    const std::uint32_t of_rank = parts_of_rank(w.params), all = w.params.sharing * of_rank;
    std::uint64_t* own = w.params.parts[0] + idle * kCopyWords;
    if (w.lane < kPartWords) {
#pragma unroll 1
        for (std::uint32_t at = w.rank * of_rank + part; at < all; at += w.params.ranks * of_rank) {
            send_word(own + part_word(row, w.lane, at), kEmptyWord);
        }
    }
}

// One warp: the block's part to all GPUs, behind what the warp made empty. Lane i has candidate i, of which `count`
// count.
template <bool kSum, class W>
__device__ __forceinline__ void send_part(const W& w, std::uint32_t copy, std::uint32_t row, std::uint32_t part,
                                          std::uint32_t count, const Candidate& best, double sum) {
    __syncwarp();
    // On one GPU the end of the launch does as well.
    if (w.params.gpus > 1) __threadfence_system();
    const bool is_sum = kSum && w.lane == kSumWord;
    if (w.lane >= count && !is_sum) return;
    const std::uint64_t word = is_sum ? static_cast<std::uint64_t>(__double_as_longlong(sum))
                                      : std::uint64_t{__float_as_uint(best.score)} << 32 | best.token;
    const std::size_t at = copy * kCopyWords + part_word(row, w.lane, part);
#pragma unroll 1
    for (std::uint32_t gpu = 0; gpu < w.params.gpus; ++gpu) send_word(w.params.parts[gpu] + at, word);
}

// One warp: a row's parts, lane i part i.
template <bool kSum, class W>
__device__ __forceinline__ void receive_parts(const W& w, std::uint32_t site, std::uint32_t copy, std::uint32_t row,
                                              std::uint32_t count, Candidate (&best)[kMaxTopK], double& sum) {
    const std::uint64_t* from = w.params.parts[0] + copy * kCopyWords + part_word(row, 0, w.lane);
    const bool is_part = w.lane < w.params.sharing * parts_of_rank(w.params);
    std::uint64_t words[kMaxTopK] = {}, last = 0;
    bool done = !is_part;
    const auto poll = [&] {
        if (!done) {
#pragma unroll
            for (std::uint32_t place = 0; place < kMaxTopK; ++place) {
                words[place] = load_word(from + min(place, count - 1) * kParts);
            }
            if constexpr (kSum) last = load_word(from + kSumWord * kParts);
            done = last != kEmptyWord;
#pragma unroll
            for (const std::uint64_t word : words) done = done && word != kEmptyWord;
        }
        return std::uint64_t{done};
    };
    sync::wait<sync::GpuArch>(w.waiter, site, 1, poll, sync::GpuArch::pause);
#pragma unroll
    for (std::uint32_t place = 0; place < kMaxTopK; ++place) {
        best[place] = {};
        if (!is_part || place >= count) continue;
        best[place] = {__uint_as_float(static_cast<std::uint32_t>(words[place] >> 32)),
                       static_cast<std::uint32_t>(words[place])};
    }
    sum = __longlong_as_double(static_cast<long long>(last));
}

}  // namespace musetrace::megakernel::step
