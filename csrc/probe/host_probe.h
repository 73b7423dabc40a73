// What `musetrace probe --device cpu` measures: raw samples, as device_probe.h does for a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace musetrace::probe {

// Successive reads of the clock of the stamps, CLOCK_MONOTONIC: ns [count].
std::vector<std::uint64_t> read_host_clock(std::size_t count);

// ns of kHostReads reads in a row [samples].
inline constexpr std::uint32_t kHostReads = 1000;
std::vector<std::uint64_t> time_host_reads(std::size_t samples);

// ns of kHostStamps stamps of one warp, in the three builds: [samples][off, store, register], by turns forward and
// backward. The clock is read for each stamp.
inline constexpr const char* kHostStampCases[] = {"off", "store", "register"};
inline constexpr std::uint32_t kHostStamps = 1600;
std::vector<std::uint64_t> time_host_stamps(std::size_t samples);

// CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_MONOTONIC: ns [rounds][3].
std::vector<std::uint64_t> host_unix_brackets(std::size_t rounds);

// ns of kHostTrips round trips of a word between two threads [samples], on two cores where the process has two. Throws
// std::runtime_error when a thread gets no answer within a second.
inline constexpr std::uint32_t kHostTrips = 16;
std::vector<std::uint64_t> time_host_hops(std::size_t samples);

}  // namespace musetrace::probe
