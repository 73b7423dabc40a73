// The fixed-width integers of the ABI. NVRTC has no standard headers, so there they are declared here, as the types
// that they are on every platform with CUDA and 64-bit Linux.
#pragma once

#if defined(__CUDACC_RTC__)
namespace std {
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using size_t = decltype(sizeof 0);
}  // namespace std
#else
#include <cstddef>
#include <cstdint>
#endif

// Constexpr functions that kernels call with values of run time.
#if defined(__CUDACC__)
#define MUSETRACE_BOTH __host__ __device__
#else
#define MUSETRACE_BOTH
#endif
