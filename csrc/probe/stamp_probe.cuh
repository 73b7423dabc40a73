// Kernels that look at the stamps themselves: does each build write what it should, and how fine is the clock?
#pragma once

#include <cstdint>

#include "musetrace/abi/stamp.h"

namespace musetrace::probe {

// Launches `blocks` blocks of twelve warps that stamp every job of the Muse layer table once, with the given build,
// into a device region of the matching layout. Returns a cudaError_t.
int run_stamp_probe(abi::StampMode mode, std::uint32_t blocks, std::uint32_t epoch, char* region);

// Reads %globaltimer `count` times in one thread into device memory. Returns a cudaError_t.
int read_clock(std::uint64_t* times, std::uint32_t count);

}  // namespace musetrace::probe
