// How fast do expert weights stream through the ring, and what does making them bf16 and multiplying them cost? The
// same kernel, on small cases, is checked against a matrix product.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "musetrace/abi/wait_report.h"
#include "probe/device_probe.h"

namespace musetrace::probe {

inline constexpr std::uint32_t kExpertThreads = 384;
inline constexpr std::uint32_t kExpertConsumers = 256;
inline constexpr std::uint32_t kExpertOutWords = 8;  // of each consumer thread
inline constexpr std::uint32_t kExpertMaxStagesOfK = 8;

enum class ExpertWork {
    kStream,    // waits for stages and gives them back; out is the number of stages
    kDequant,   // out is the XOR of all bf16x2 registers, word 4 unit + register
    kMultiply,  // out is the fp32 sums, word 4 unit + sum, with kProductExponent in them
};

struct ExpertVariant {
    ExpertWork work;
    bool move_registers;            // setmaxnreg: from the warps that load to the warps that compute
    std::uint32_t in_flight_bytes;  // of sync::GpuRing::Producer
};

// Each block streams `stages` stages, one after the other in `packed`: row blocks of 64 rows x 512 k_stages K; all of
// them against the same tokens, bf16 [8][512 k_stages], and into the same sums. Device memory.
struct ExpertInput {
    const char* packed;
    const std::uint32_t* tokens;
    std::uint32_t blocks;
    std::uint32_t stages;
    std::uint32_t k_stages;  // 1 to kExpertMaxStagesOfK
    // The loader of block `lost_block` ends before its stage `lost_stage`: a fault, to see what the waits do.
    std::uint32_t lost_block;
    std::uint32_t lost_stage;
    std::uint64_t budget_ns;
    abi::WaitReport* report;
    std::uint32_t* out;  // [blocks][kExpertConsumers][kExpertOutWords]
};

struct ExpertFit {
    int blocks;  // that the device holds at once
    int registers;
    std::size_t local_bytes;  // stack and spills of a thread
    std::size_t shared_bytes;
};

// All of these throw std::runtime_error.
ExpertFit fit_expert_probe(const ExpertVariant& variant);
// Does not wait for the end.
void launch_expert_probe(const ExpertVariant& variant, const ExpertInput& input, cudaStream_t stream);

// Runs each variant as a graph of `launches` launches that read `launches` times blocks x stages stages from
// input.packed on. A round is all variants, forward and then backward. Microseconds a launch [variant][2 rounds].
Times time_expert_probe(const std::vector<ExpertVariant>& variants, const ExpertInput& input, std::uint32_t launches,
                        std::uint32_t rounds);

}  // namespace musetrace::probe
