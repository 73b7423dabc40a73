// The host device's machine: what a wait, a barrier or a slot needs from the hardware.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "musetrace/stamp.cuh"
#include "sync/wait.h"

namespace musetrace::sync {

// Thrown out of a wait that timed out or saw the abort flag; every warp of the launch leaves this way.
struct Abandoned {};

struct HostArch {
    template <class T>
    static T load_relaxed(const T* address) {
        return __atomic_load_n(address, __ATOMIC_RELAXED);
    }
    template <class T>
    static T load_acquire(const T* address) {
        return __atomic_load_n(address, __ATOMIC_ACQUIRE);
    }
    template <class T>
    static void store_relaxed(T* address, T value) {
        __atomic_store_n(address, value, __ATOMIC_RELAXED);
    }
    template <class T>
    static void store_release(T* address, T value) {
        __atomic_store_n(address, value, __ATOMIC_RELEASE);
    }
    template <class T>
    static T fetch_add(T* address, T value) {
        return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
    }
    // True for the one caller that turns 0 into 1.
    static bool claim(std::uint32_t* flag) {
        std::uint32_t expected = 0;
        return __atomic_compare_exchange_n(flag, &expected, 1u, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    static std::uint64_t now_ns() { return stamp_clock_ns(); }
    // A warp of the host device is one thread.
    static bool all(bool mine) { return mine; }
    static constexpr std::uint32_t kPollsPerLook = 1;
    static std::uint64_t look(const Waiter& waiter, std::uint32_t site, std::uint32_t patience, std::uint64_t want,
                              std::uint64_t got, std::uint64_t start_ns) {
        const std::uint64_t now = now_ns();
        if (start_ns == 0) start_ns = now;
        if (load_acquire(waiter.abort) != 0 || now - start_ns > longest_wait(waiter.budget_ns, patience, site)) {
            leave(waiter, site, static_cast<std::uint32_t>(want), static_cast<std::uint32_t>(got), start_ns);
        }
        return start_ns;
    }

    // Warps are threads and there are more of them than cores: spin for a moment (the other side may be running
    // right now), give the core away a few times, then sleep longer and longer so that whoever works gets it.
    static constexpr std::uint32_t kSpins = 64;
    static constexpr std::uint32_t kYields = 4;
    static void pause(std::uint32_t round) {
        if (round < kSpins) {
            spin();
        } else if (round < kSpins + kYields) {
            sched_yield();
        } else {
            const timespec nap{0, 10'000L << std::min(round - kSpins - kYields, 5u)};  // 10 to 320 us
            nanosleep(&nap, nullptr);
        }
    }
    static void spin() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

  private:
    [[noreturn]] static void leave(const Waiter& waiter, std::uint32_t site, std::uint32_t want, std::uint32_t got,
                                   std::uint64_t start_ns) {
        if (load_acquire(waiter.abort) == 0 && claim(&waiter.report->claimed)) {
            waiter.report->site = site;
            waiter.report->rank = waiter.rank;
            waiter.report->block = waiter.block;
            waiter.report->warp = waiter.warp;
            waiter.report->want = want;
            waiter.report->got = got;
            waiter.report->waited_ns = now_ns() - start_ns;
            store_release(waiter.abort, 1u);
        }
        throw Abandoned{};
    }
};

// A word that warps of one block wait on. Waiters spin for a moment, then sleep until it changes; a change without
// sleepers costs no system call.
class EventWord {
  public:
    std::uint32_t value() const { return HostArch::load_acquire(&word_); }

    // Not while anybody waits.
    void reset(std::uint32_t value) { HostArch::store_relaxed(&word_, value); }

    void publish(std::uint32_t value) {
        __atomic_store_n(&word_, value, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&sleepers_, __ATOMIC_SEQ_CST) == 0) return;
        syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 0x7FFFFFFF, nullptr, nullptr, 0);
    }

    // A round of waiting while the word is `seen`; may end early. Sleeps are short enough to notice an abort.
    void pause(std::uint32_t round, std::uint32_t seen) const {
        if (round < HostArch::kSpins) return HostArch::spin();
        __atomic_fetch_add(&sleepers_, 1u, __ATOMIC_SEQ_CST);
        const timespec most{0, 20'000'000};
        syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen, &most, nullptr, 0);
        __atomic_fetch_sub(&sleepers_, 1u, __ATOMIC_SEQ_CST);
    }

  private:
    std::uint32_t word_ = 0;
    mutable std::uint32_t sleepers_ = 0;
};

}  // namespace musetrace::sync
