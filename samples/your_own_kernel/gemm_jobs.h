// The jobs of the GEMM: what its warps stamp, and which job each wait waits for.
#pragma once

#include "musetrace/stamp.cuh"

// clang-format off
#define GEMM_ROLES(ROLE)                            \
    ROLE(producer, 0, 0, 0b00001)                   \
    ROLE(consumer, 1, 4, 0b11110)

#define GEMM_JOBS(JOB)                                                                              \
    JOB(wait_for_stage, gemm,   Wait,    producer, multiply, 32, musetrace::abi::kFromBlock)        \
    JOB(load,           gemm,   Load,    producer, none,     32, musetrace::abi::kPayload)          \
    JOB(wait_for_tiles, gemm,   Wait,    consumer, load,     32, musetrace::abi::kFromBlock)        \
    JOB(multiply,       gemm,   Compute, consumer, none,     32)                                    \
    JOB(store,          output, Send,    consumer, none)
// clang-format on

MUSETRACE_JOB_TABLE(GemmJobs, "gemm", 5, GEMM_ROLES, GEMM_JOBS);
