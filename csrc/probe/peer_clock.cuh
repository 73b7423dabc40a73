// How far is the clock of another GPU ahead? Two threads, one on each GPU, send each other flags through peer memory:
// the one asks, the other answers with its time, and what lies between asking and seeing the answer bounds the error.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace musetrace::probe {

inline constexpr std::uint32_t kPeerClockRounds = 1024;
// What a copy or a launch may take on a GPU that has other work, on top of a kernel's budget, at most.
inline constexpr std::uint64_t kMostPatienceNs = 2'000'000'000;

// What the other end writes. A flag is a time, and its own signal: 0 until it is there. Every round has flags of its
// own; they are used again once `clear` has emptied them, which the host does while no end runs.
struct PeerClockFlags {
    std::uint64_t asked[kPeerClockRounds];
    std::uint64_t answered[kPeerClockRounds];
    std::uint32_t given_up;  // by the other end
};

// One end's part in an exchange. `ahead_ns` is added to every reading of the clock, to see whether it is found.
struct PeerClockEnd {
    PeerClockFlags* own;
    PeerClockFlags* other;
    std::uint64_t* times;  // [kPeerClockRounds][3] of the end that asks: asked, answered, answer seen
    std::uint32_t* rounds;
    std::int64_t ahead_ns;
    bool asks;
};

// A GPU's end. Its memory is exported, so it lives as long as the process. Throws std::runtime_error when CUDA refuses
// or when a kernel does not end; nothing can be done with it then.
class PeerClock {
  public:
    using Round = std::array<std::uint64_t, 3>;

    // On the current GPU.
    PeerClock();
    PeerClock(const PeerClock&) = delete;
    PeerClock& operator=(const PeerClock&) = delete;

    std::string handle() const;
    // Maps the memory of an end in another process of this host, once.
    void reach(const std::string& handle);
    // Empties the flags, before the other end may ask; other work of the GPU may hold it up so long.
    void clear(std::uint64_t patience_ns);
    // Both return after all rounds, or `budget_ns` after the kernel began, and wait four times that for a busy GPU.
    // Any thread.
    std::uint32_t answer(const std::string& handle, std::uint64_t budget_ns, std::int64_t ahead_ns);
    std::vector<Round> ask(const std::string& handle, std::uint64_t budget_ns, std::int64_t ahead_ns);
    // Both ends here, as two blocks; the one that answers is ahead.
    std::vector<Round> ask_itself(std::uint64_t budget_ns, std::int64_t ahead_ns);

  private:
    PeerClockFlags* flags(std::uint32_t which) const { return flags_ + which; }
    PeerClockFlags* mapped(const std::string& handle);
    void run(const PeerClockEnd* ends, std::uint32_t count, std::uint64_t budget_ns);
    void wait_for_stream(std::uint64_t longest_ns);
    std::uint32_t rounds_done(std::uint64_t budget_ns);
    std::vector<Round> times_of(std::uint32_t rounds);

    int gpu_ = 0;
    bool stuck_ = false;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t ended_ = nullptr;
    PeerClockFlags* flags_ = nullptr;  // two of them; the second is for ask_itself
    std::uint64_t* times_ = nullptr;   // of the end that asks
    std::uint32_t* rounds_ = nullptr;  // of both ends
    std::map<std::string, PeerClockFlags*> mapped_;
};

}  // namespace musetrace::probe
