// What `musetrace probe` measures on a GPU: raw samples, one function for each experiment. Statistics are Python's.
//
// The current device is measured, by this thread. Every wait in a kernel is bounded; a function throws
// std::runtime_error with one line when CUDA failed or a wait was given up, std::invalid_argument for a wrong argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace musetrace::probe {

// Row-major.
template <class T>
struct Samples {
    std::vector<std::size_t> shape;
    std::vector<T> values;
};
using Counts = Samples<std::uint64_t>;
using Times = Samples<float>;
// Cycles of SMs, and pairs (ns of %globaltimer, cycles) [...][begin and end][2] from which their length follows.
struct Cycles {
    Counts cycles;
    Counts clocks;
};

// Cycles of 32 reads in a row [samples]; %globaltimer or clock64.
Counts measure_clock_reads(bool globaltimer, std::uint32_t samples);

// Questions to a running kernel through the host's memory: [rounds][3] ns of CLOCK_REALTIME before, %globaltimer,
// CLOCK_REALTIME after.
Counts measure_unix_brackets(std::uint32_t rounds);

// Both clocks on every SM, every `interval_ns`, each time at a step of %globaltimer: [blocks][count][2]. With or
// without eleven warps of each block that do nothing but HMMA.
Counts measure_clock_pairs(bool tensor_load, std::uint32_t count, std::uint32_t interval_ns);

// A warp of each block waits for known times, `repeats` times for each of them, between two reads of both clocks. Both
// ways of waiting, spin (until %globaltimer has gone on so far) and loop (so many turns of dependent instructions):
// stamps [blocks][2][delays][repeats][5], columns begin ns, begin cycles, end ns, end cycles, and for the spin the ns
// that passed by its own reads. Loops of `calibration` times the turns, unstamped, before and after: ns
// [blocks][2][delays]. The block's anchors [blocks][2][2].
struct Delays {
    Counts stamps;
    Counts loops_ns;
    Counts anchors;
};
Delays measure_delays(bool tensor_load, const std::vector<std::uint32_t>& delays_ns,
                      const std::vector<std::uint32_t>& turns, std::uint32_t repeats, std::uint32_t calibration);

// Microseconds of a launch [case][2 rounds], a case for each of kStampCases: a stream of 173 MB through 132 SMs in
// graphs of `launches`. `writes_output`: every consumer thread stores 16 bytes at its end.
inline constexpr const char* kStampCases[] = {"absent", "off", "read", "store", "register"};
inline constexpr std::uint32_t kStampsPerBlock = 166;
Times measure_stamp_costs(std::uint32_t launches, std::uint32_t rounds, bool programmatic, bool writes_output);

// Microseconds of reading `bytes` once [in_flight][2 rounds]; in_flight counts pieces of 16 KiB for each SM.
Times measure_streams(const std::vector<std::uint32_t>& in_flight, std::size_t bytes, std::uint32_t rounds);

// Round trips between pairs of SMs [pairs][rounds], all SMs reading memory meanwhile unless `in_flight` is 0. Clocks
// [pairs][2][2]. Lamport: 16 bytes, relaxed, data is its own flag; else st.release and ld.acquire of a word, gpu scope.
Cycles measure_hops(bool lamport, std::uint32_t in_flight, std::uint32_t pairs, std::uint32_t rounds);

// One operation of a warp on each SM, again and again [blocks][samples], all SMs reading memory meanwhile. Clocks
// [blocks][2][2].
inline constexpr const char* kMemoryOperations[] = {"fence_gpu",       "fence_acq_rel_gpu", "fence_sys",
                                                    "store_fence_gpu", "poll_relaxed",      "poll_acquire_gpu",
                                                    "poll_acquire_sys"};
Cycles measure_operations(std::uint32_t operation, std::uint32_t in_flight, std::uint32_t samples);

// Barriers over one block on each SM [blocks][rounds]. Clocks [blocks][2][2].
Cycles measure_barriers(std::uint32_t rounds);

// Launches of a graph that spin for 5 us: ns [replays][launches][blocks][3], begin, behind the wait for the launch
// before, end.
enum class Boundary : std::uint32_t { kPlain, kProgrammatic, kEarlyTrigger };
Counts measure_boundaries(Boundary boundary, std::uint32_t shared_bytes, std::uint32_t launches, std::uint32_t replays);
// Microseconds of a launch of an empty kernel in a graph [2][2 rounds]: plain, programmatic.
Times measure_empty_launches(std::uint32_t launches, std::uint32_t rounds);

// Passes through straight-line bodies of kBodies[body] KiB of code, the second right after the first (0: there is
// none): cycles [launches][blocks][passes][2]. Clocks [launches][blocks][2][2]. Before each launch L2 is filled with
// other data.
inline constexpr std::pair<std::uint32_t, std::uint32_t> kBodies[] = {{20, 0},  {40, 0},  {60, 0},   {80, 0},
                                                                      {100, 0}, {120, 0}, {130, 0},  {140, 0},
                                                                      {160, 0}, {200, 0}, {20, 100}, {100, 100}};
Cycles measure_bodies(std::uint32_t body, std::uint32_t warps, std::uint32_t passes, std::uint32_t launches);

// All SMs read `bytes` at once: ns [launches][blocks][2], the common begin and each block's end. Before, L2 is filled
// with other data, and the bytes are left there, prefetched into L2, or loaded by the SM that will read them.
enum class L2State : std::uint32_t { kCold, kPrefetched, kLoaded };
Counts measure_l2(L2State state, std::size_t bytes, std::uint32_t launches);

// How many clusters of so many blocks of 384 threads and 160 KiB of shared memory run at once; 0: none.
std::vector<std::uint32_t> measure_clusters(const std::vector<std::uint32_t>& sizes);

// Round trips between two GPUs [rounds], by the first one's cycles. Clocks [2][2]. Lamport slots of 16 bytes, each in
// its reader's memory.
Cycles measure_peer_hops(int first, int second, std::uint32_t rounds);

}  // namespace musetrace::probe
