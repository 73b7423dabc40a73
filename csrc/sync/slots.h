// Exchange slots: data is its own flag. A slot holds a pattern that no producer writes until the value arrives; the
// reader polls until no slot is empty. No flag, no fence, one hop.
//
// Three encodings, by what their values can be:
//   GatherBf16   bf16, empty 0xFFFF (a NaN; producers send every NaN as 0x7FC0)
//   SumBf16      bf16 partial sums, empty +0 (a real +0 is sent as -0, which adds the same)
//   GatherF32    fp32, empty 0xFFFFFFFF (a NaN; producers send every NaN as 0x7FC00000)
#pragma once

#include <cstdint>
#include <cstring>

#include "sync/wait.h"

namespace musetrace::sync {

struct GatherBf16 {
    using Word = std::uint16_t;
    static constexpr Word kEmpty = 0xFFFF;
    static Word encode(Word bits) { return (bits & 0x7FFF) > 0x7F80 ? Word{0x7FC0} : bits; }
};

struct SumBf16 {
    using Word = std::uint16_t;
    static constexpr Word kEmpty = 0x0000;
    static Word encode(Word bits) { return bits == 0 ? Word{0x8000} : bits; }
};

struct GatherF32 {
    using Word = std::uint32_t;
    static constexpr Word kEmpty = 0xFFFFFFFF;
    static Word encode(Word bits) { return (bits & 0x7FFFFFFF) > 0x7F800000 ? Word{0x7FC00000} : bits; }
};

template <class Arch, class Encoding>
struct Slots {
    using Word = typename Encoding::Word;

    static void send(Word* slot, Word bits) { Arch::store_relaxed(slot, Encoding::encode(bits)); }

    static Word receive(const Word* slot) { return Arch::load_relaxed(slot); }

    // Waits until all `count` slots are full. Each is looked at by itself: wide stores arrive in pieces.
    static void wait_full(const Waiter& waiter, std::uint32_t site, const Word* slots, std::size_t count) {
        std::size_t full = 0;
        const auto poll = [&] {
            while (full < count && Arch::load_relaxed(slots + full) != Encoding::kEmpty) ++full;
            return std::uint64_t{full};
        };
        wait<Arch>(waiter, site, count, poll, Arch::pause);
    }

    static void reset(Word* slots, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) Arch::store_relaxed(slots + i, Encoding::kEmpty);
    }
};

}  // namespace musetrace::sync
