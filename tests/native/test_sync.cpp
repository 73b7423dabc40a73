// The synchronisation protocol by itself, run plain and under TSan and ASan: the bounded wait and its report, the
// ring across op boundaries, data-is-its-own-flag slots.
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "check.h"
#include "sync/host_arch.h"
#include "sync/ring.h"
#include "sync/slots.h"

namespace {

using musetrace::abi::WaitReport;
using musetrace::sync::Abandoned;
using musetrace::sync::HostArch;
using musetrace::sync::RingCursor;
using musetrace::sync::Waiter;
using Barrier = musetrace::sync::MBarrier;
using musetrace::sync::Ring;

Waiter waiter(WaitReport& report, std::uint32_t warp, std::uint64_t budget_ns = 20'000'000'000) {
    return {&report, budget_ns, 0, 0, warp, &report.abort};
}

// 64 waiters behind one arrival that never comes: one report, and all of them leave.
void lost_arrival_gives_one_report() {
    WaitReport report{};
    Barrier barrier;
    barrier.init(2);
    barrier.arrive();
    std::atomic<int> abandoned{0};
    std::vector<std::thread> threads;
    for (std::uint32_t warp = 0; warp < 64; ++warp) {
        threads.emplace_back([&, warp] {
            try {
                barrier.wait_parity(waiter(report, warp, 50'000'000), 7, 0);
            } catch (const Abandoned&) {
                ++abandoned;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(abandoned == 64);
    CHECK(report.claimed == 1 && report.abort == 1 && report.site == 7);
    CHECK(report.want == 1 && report.got == 0 && report.waited_ns >= 50'000'000);
}

// 997 pieces through rings of 2 to 5 stages, in ops whose sizes are no multiple of the ring; every consumer sees
// every byte, in order.
void ring_keeps_order_across_ops() {
    for (std::uint32_t stages = 2; stages <= 5; ++stages) {
        constexpr std::uint32_t kConsumers = 4, kPieces = 997, kStageBytes = 64;
        WaitReport report{};
        Ring ring(stages, kStageBytes, kConsumers);
        ring.init();
        std::vector<std::thread> threads;
        threads.emplace_back([&] {
            RingCursor cursor;
            for (std::uint32_t piece = 0; piece < kPieces; ++piece) {
                char* stage = ring.wait_empty(waiter(report, 0), 1, cursor);
                std::memset(stage, static_cast<int>(piece % 251), kStageBytes);
                ring.mark_full(cursor);
            }
        });
        for (std::uint32_t consumer = 0; consumer < kConsumers; ++consumer) {
            threads.emplace_back([&, consumer] {
                RingCursor cursor;
                for (std::uint32_t piece = 0; piece < kPieces; ++piece) {
                    const char* stage = ring.wait_full(waiter(report, 1 + consumer), 2, cursor);
                    for (std::uint32_t i = 0; i < kStageBytes; ++i) {
                        CHECK(static_cast<unsigned char>(stage[i]) == piece % 251);
                    }
                    ring.mark_empty(cursor);
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(report.claimed == 0);
    }
}

// The producer never writes the empty pattern, whatever the value, and the value survives but for a NaN's payload and
// the sign of a zero sum.
template <class Encoding, class Word>
void encoding_never_sends_empty(Word exponent_mask) {
    for (std::uint64_t bits = 0; bits <= 0xFFFF; ++bits) {
        const Word word = static_cast<Word>(sizeof(Word) == 4 ? bits * 65537u : bits);
        const Word sent = Encoding::encode(word);
        CHECK(sent != Encoding::kEmpty);
        const bool nan = (word & static_cast<Word>(~(Word{1} << (8 * sizeof(Word) - 1)))) > exponent_mask;
        if (!nan && word != 0) CHECK(sent == word);
    }
}

void slots_carry_their_own_flag() {
    using S = musetrace::sync::Slots<HostArch, musetrace::sync::GatherF32>;
    WaitReport report{};
    std::vector<std::uint32_t> slots(4096);
    S::reset(slots.data(), slots.size());
    std::thread producer([&] {
        for (std::size_t i = slots.size(); i-- > 0;) S::send(&slots[i], static_cast<std::uint32_t>(i));
    });
    S::wait_full(waiter(report, 0), 3, slots.data(), slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) CHECK(S::receive(&slots[i]) == i);
    producer.join();
}

}  // namespace

int main() {
    lost_arrival_gives_one_report();
    ring_keeps_order_across_ops();
    encoding_never_sends_empty<musetrace::sync::GatherBf16, std::uint16_t>(0x7F80);
    encoding_never_sends_empty<musetrace::sync::SumBf16, std::uint16_t>(0x7F80);
    encoding_never_sends_empty<musetrace::sync::GatherF32, std::uint32_t>(0x7F800000);
    slots_carry_their_own_flag();
    std::puts("sync: passed");
    return 0;
}
