// Stamps inside a kernel: each warp notes the clock at the begin and the end of its jobs.
//
//   #define GEMM_ROLES(ROLE) ROLE(producer, 0, 0, 1u << 0) ROLE(consumer, 1, 4, 1u << 1)
//   #define GEMM_JOBS(JOB) JOB(load, tile, Load, producer, none, 16) JOB(multiply, tile, Compute, consumer, none, 16)
//   MUSETRACE_JOB_TABLE(GemmJobs, "gemm", 5, GEMM_ROLES, GEMM_JOBS);
//
//   __global__ void gemm(..., void* stamps) {                  // from the recorder; null when it does not record
//       musetrace::KernelStamps<GemmJobs> kernel(stamps);
//       if (threadIdx.x < 32) {
//           auto warp = kernel.role<GemmJobs::producer>();
//           for (int i = 0; i < tiles; ++i) {
//               MUSETRACE_BEGIN(warp, GemmJobs::load, i);
//               ...
//               MUSETRACE_END(warp, GemmJobs::load, i);
//           }
//           MUSETRACE_FLUSH(warp);                              // where the warp waits anyway
//       }
//
// Three builds from one source, by -DMUSETRACE_STAMPS=0|1|2. Off: no code, the machine code equals a source without
// stamps. Store: lane 0 stores 8 bytes at once. Register, the default: the lane whose number is the slot keeps the low
// 32 bits of the clock; flush() writes each register with one coalesced store. A role with more than 48 spans in a
// launch stores them at once there too.
//
// C++17, for nvcc and NVRTC; needs no library. The same header serves host code, where a warp is a thread and its lanes
// are an array. The megakernel of this package, which has its regions from elsewhere, uses WarpStamps alone.
#pragma once

#include "musetrace/abi/job.h"
#include "musetrace/stamp/kernel_stamps.cuh"
