// Exchange slots on the GPU (slots.h has the idea and the host's twin): lanes send and receive words of 4, 8 or 16
// bytes. A wide store may land in pieces, so every slot of a word is looked at.
//
// Senders need no encoding where the pattern cannot arise: arithmetic and conversions to bf16 give 0x7FFFFFFF and
// 0x7FFF for NaN, never all ones. Only sums must turn +0 into -0.
#pragma once

#include <cstdint>

#include "sync/gpu_arch.cuh"

namespace musetrace::sync {

// Both kinds of slots whose empty pattern is all ones: the largest value there is, so words are put together by their
// maximum, half by half or whole, and one look says whether a slot among them is empty.
struct OnesBf16 {
    static constexpr std::uint32_t kNeutral = 0;
    static __device__ __forceinline__ std::uint32_t merge(std::uint32_t so_far, std::uint32_t a, std::uint32_t b) {
        return __vimax3_u16x2(so_far, a, b);
    }
    static __device__ __forceinline__ bool full(std::uint32_t merged) {
        const std::uint32_t inverse = ~merged;  // has a zero half?
        return ((inverse - 0x00010001u) & merged & 0x80008000u) == 0;
    }
};
struct OnesF32 {
    static constexpr std::uint32_t kNeutral = 0;
    static __device__ __forceinline__ std::uint32_t merge(std::uint32_t so_far, std::uint32_t a, std::uint32_t b) {
        return __vimax3_u32(so_far, a, b);
    }
    static __device__ __forceinline__ bool full(std::uint32_t merged) { return merged != 0xFFFFFFFFu; }
};
// Sums, empty +0, the smallest value as a number without sign.
struct ZerosBf16 {
    static constexpr std::uint32_t kNeutral = 0xFFFFFFFF;
    static __device__ __forceinline__ std::uint32_t merge(std::uint32_t so_far, std::uint32_t a, std::uint32_t b) {
        return __vimin3_u16x2(so_far, a, b);
    }
    static __device__ __forceinline__ bool full(std::uint32_t merged) {
        return ((merged - 0x00010001u) & ~merged & 0x80008000u) == 0;
    }
    static __device__ __forceinline__ std::uint32_t encode(std::uint32_t word) {
        return word | (__vcmpeq2(word, 0) & 0x80008000u);
    }
};

__device__ __forceinline__ void load_slots(std::uint32_t& word, const void* slot) {
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(slot) : "memory");
}
__device__ __forceinline__ void load_slots(uint2& words, const void* slot) {
    asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(slot) : "memory");
}
__device__ __forceinline__ void load_slots(uint4& words, const void* slot) {
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(slot)
                 : "memory");
}
__device__ __forceinline__ void send_slots(void* slot, std::uint32_t word) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(slot), "r"(word) : "memory");
}
__device__ __forceinline__ void send_slots(void* slot, uint2 words) {
    asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(slot), "r"(words.x), "r"(words.y) : "memory");
}
__device__ __forceinline__ void send_slots(void* slot, uint4 words) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(slot), "r"(words.x), "r"(words.y),
                 "r"(words.z), "r"(words.w)
                 : "memory");
}

template <class Slot>
__device__ __forceinline__ std::uint32_t merge_slots(std::uint32_t so_far, std::uint32_t word) {
    return Slot::merge(so_far, word, word);
}
template <class Slot>
__device__ __forceinline__ std::uint32_t merge_slots(std::uint32_t so_far, uint2 words) {
    return Slot::merge(so_far, words.x, words.y);
}
template <class Slot>
__device__ __forceinline__ std::uint32_t merge_slots(std::uint32_t so_far, uint4 words) {
    return Slot::merge(Slot::merge(so_far, words.x, words.y), words.z, words.w);
}

// The warp: each lane gets its `count` words (at most kLoads), the i-th from slot(i); returns when all lanes have all
// of theirs. The loads of a round are issued together, and all kLoads of them, the last one again where there are
// fewer: loads under conditions become a ladder of branches ten times as long.
template <class Slot, std::uint32_t kLoads, class Word, class Address>
__device__ __forceinline__ void receive_slots(const Waiter& waiter, std::uint32_t site, Word (&words)[kLoads],
                                              std::uint32_t count, Address slot) {
    bool done = count == 0;
    // What may be read undefined is live in all code before, and takes registers there.
#pragma unroll
    for (std::uint32_t i = 0; i < kLoads; ++i) words[i] = Word{};
    const auto poll = [&] {
        if (!done) {
#pragma unroll
            for (std::uint32_t i = 0; i < kLoads; ++i) load_slots(words[i], slot(min(i, count - 1)));
            std::uint32_t merged = Slot::kNeutral;
#pragma unroll
            for (std::uint32_t i = 0; i < kLoads; ++i) merged = merge_slots<Slot>(merged, words[i]);
            done = Slot::full(merged);
        }
        return std::uint64_t{done};
    };
    wait<GpuArch>(waiter, site, 1, poll, GpuArch::pause);
}

// How many of `first`, `first` + `step`, ... are below `end`.
__device__ __forceinline__ std::uint32_t count_below(std::uint32_t first, std::uint32_t end, std::uint32_t step) {
    return first < end ? (end - first + step - 1) / step : 0;
}

}  // namespace musetrace::sync
