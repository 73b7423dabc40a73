// Data to read. Zeros would be read 5 to 10 % too fast: they need less power.
#pragma once

#include <cstddef>

namespace musetrace::probe {

// Fills device memory, a multiple of 8 bytes, and waits for it. Throws std::runtime_error.
void fill_random(void* data, std::size_t bytes);

}  // namespace musetrace::probe
