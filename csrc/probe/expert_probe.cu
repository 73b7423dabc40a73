#include "megakernel/expert_stream.cuh"
#include "musetrace/abi/muse_layer_jobs.h"
#include "probe/expert_probe.cuh"
#include "probe/graph_timer.h"

namespace musetrace::probe {
namespace {

using namespace megakernel;
using abi::MuseLayer;

constexpr std::uint32_t kFirstConsumer = 4;
// 128 x 56 + 256 x 224 registers are those of 384 x 168.
constexpr std::uint32_t kLoaderRegisters = 56;
constexpr std::uint32_t kConsumerRegisters = 224;
static_assert(kExpertThreads == (kFirstConsumer + kConsumerWarps) * kLanes);
static_assert(kExpertConsumers == kConsumerWarps * kLanes);

struct SharedMemory {
    ExpertRing ring;
    uint4 tokens[token_bytes(kExpertMaxStagesOfK * kMaxStageK) / sizeof(uint4)];
    sync::Waiter waiter;
};
static_assert(sizeof(SharedMemory) <= 232'448);

__device__ __forceinline__ void load(SharedMemory& shared, const sync::Waiter& waiter, const ExpertInput& input,
                                     std::uint32_t in_flight_bytes) {
    ExpertRing::Producer producer(shared.ring, in_flight_bytes);
    const char* source = input.packed + std::size_t{blockIdx.x} * input.stages * kExpertStageBytes;
    const bool loses = blockIdx.x == input.lost_block && input.lost_stage < input.stages;
    const std::uint32_t stages = loses ? input.lost_stage : input.stages;
    for (std::uint32_t stage = 0; stage < stages; ++stage, source += kExpertStageBytes) {
        producer.fill(waiter, MuseLayer::gemm1_load, source, kExpertStageBytes);
    }
}

template <class Take>
__device__ __forceinline__ void take_stages(SharedMemory& shared, const sync::Waiter& waiter, std::uint32_t site,
                                            sync::RingCursor& cursor, std::uint32_t stages, std::uint32_t warp,
                                            Take take) {
    if (stages == 0) return;
    StageReader<ExpertRing> reader(shared.ring, waiter, site, kMaxStageK, warp, sync::lane_id());
    reader.start(cursor);
#pragma unroll 1
    for (std::uint32_t left = stages - 1; left != 0; --left) reader.template take_stage<true>(cursor, take);
    reader.template take_stage<false>(cursor, take);
}

template <ExpertWork kWork>
__device__ __forceinline__ void consume(SharedMemory& shared, const sync::Waiter& waiter, const ExpertInput& input,
                                        std::uint32_t factor) {
    constexpr std::uint32_t kSite = MuseLayer::gemm1_wait_weights;
    const std::uint32_t thread = threadIdx.x - kFirstConsumer * kLanes, warp = thread / kLanes;
    sync::RingCursor cursor;
    std::uint32_t out[kUnitsPerWarp][4] = {};
    if constexpr (kWork == ExpertWork::kStream) {
        std::uint32_t taken = 0;
        for (; taken < input.stages; ++taken) {
            shared.ring.wait_full(waiter, kSite, cursor);
            shared.ring.mark_empty(cursor);
        }
        for (auto& unit : out) {
            for (std::uint32_t& word : unit) word = taken;
        }
    } else if constexpr (kWork == ExpertWork::kDequant) {
        const auto mix = [&](std::uint32_t, const HalfShare& share, auto then) {
#pragma unroll
            for (std::uint32_t step = 0; step < kHalfSteps; step += 2) {
                const PairFragments fragments(share, step, factor);
#pragma unroll
                for (std::uint32_t i = 0; i < kUnitsPerWarp * 8; ++i) {
                    out[i / 8][i % 4] ^= fragments.a[i / 8][i / 4 % 2].reg[i % 4];
                }
            }
            then();
        };
        take_stages(shared, waiter, kSite, cursor, input.stages, warp, mix);
    } else {
        store_tokens(shared.tokens, input.tokens, input.k_stages * kMaxStageK, thread, kExpertConsumers);
        // The consumers alone: the loader is at work already.
        asm volatile("bar.sync 1, %0;" ::"n"(kExpertConsumers) : "memory");
        float sums[kUnitsPerWarp][4] = {};
        const uint4* first = shared.tokens + warp % kGroupsOfK * (kGroupK / kTokenLoadK) * kLanes + sync::lane_id();
        std::uint32_t k_stage = 0;
        const auto multiply = [&](std::uint32_t half, const HalfShare& share, auto then) {
            const uint4* from = first + (k_stage * kGroupsOfK * kGroupK / kTokenLoadK + half * kHalfSteps / 2) * kLanes;
            multiply_half(share, factor, [&](std::uint32_t i) { return from[i * kLanes]; }, sums, then);
            // Restarts at the first K with every row block.
            if (half == 1 && ++k_stage == input.k_stages) k_stage = 0;
        };
        take_stages(shared, waiter, kSite, cursor, input.stages, warp, multiply);
#pragma unroll
        for (std::uint32_t i = 0; i < kUnitsPerWarp * 4; ++i) out[i / 4][i % 4] = __float_as_uint(sums[i / 4][i % 4]);
    }
    auto* to =
        reinterpret_cast<uint4*>(input.out + (std::size_t{blockIdx.x} * kExpertConsumers + thread) * kExpertOutWords);
    to[0] = {out[0][0], out[0][1], out[0][2], out[0][3]};
    to[1] = {out[1][0], out[1][1], out[1][2], out[1][3]};
}

template <ExpertWork kWork, bool kMoveRegisters>
__global__ void __launch_bounds__(kExpertThreads, 1)
    expert_probe(const __grid_constant__ ExpertInput input, std::uint32_t in_flight_bytes, std::uint32_t factor) {
    extern __shared__ __align__(128) char bytes[];
    SharedMemory& shared = *reinterpret_cast<SharedMemory*>(bytes);
    if (threadIdx.x == 0) {
        shared.ring.init();
        shared.waiter = {input.report, input.budget_ns, 0, blockIdx.x, 0, &input.report->abort};
    }
    __syncthreads();
    const std::uint32_t warp = threadIdx.x / kLanes;
    if (warp < kFirstConsumer) {
        if constexpr (kMoveRegisters) sync::give_registers_back<kLoaderRegisters>();
        if (warp == 0) load(shared, shared.waiter, input, in_flight_bytes);
    } else {
        if constexpr (kMoveRegisters) sync::take_registers<kConsumerRegisters>();
        consume<kWork>(shared, shared.waiter, input, factor);
    }
}

using Kernel = void (*)(ExpertInput, std::uint32_t, std::uint32_t);

Kernel kernel_of(const ExpertVariant& variant) {
    switch (variant.work) {
        case ExpertWork::kStream:
            return variant.move_registers ? expert_probe<ExpertWork::kStream, true>
                                          : expert_probe<ExpertWork::kStream, false>;
        case ExpertWork::kDequant:
            return variant.move_registers ? expert_probe<ExpertWork::kDequant, true>
                                          : expert_probe<ExpertWork::kDequant, false>;
        default:
            return variant.move_registers ? expert_probe<ExpertWork::kMultiply, true>
                                          : expert_probe<ExpertWork::kMultiply, false>;
    }
}

}  // namespace

ExpertFit fit_expert_probe(const ExpertVariant& variant) {
    const auto kernel = reinterpret_cast<const void*>(kernel_of(variant));
    cudaFuncAttributes attributes{};
    int device = 0, processors = 0, blocks = 0;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(SharedMemory)),
          "asking for the shared memory of the expert probe");
    check(cudaFuncGetAttributes(&attributes, kernel), "asking for the registers of the expert probe");
    check(cudaGetDevice(&device), "asking for the GPU");
    check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "asking for the SMs");
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kExpertThreads, sizeof(SharedMemory)),
          "asking how many blocks of the expert probe fit");
    return {blocks * processors, attributes.numRegs, attributes.localSizeBytes, sizeof(SharedMemory)};
}

void launch_expert_probe(const ExpertVariant& variant, const ExpertInput& input, cudaStream_t stream) {
    kernel_of(variant)<<<input.blocks, kExpertThreads, sizeof(SharedMemory), stream>>>(input, variant.in_flight_bytes,
                                                                                       kScaleFactor);
    check(cudaGetLastError(), "launching the expert probe");
}

Times time_expert_probe(const std::vector<ExpertVariant>& variants, const ExpertInput& input, std::uint32_t launches,
                        std::uint32_t rounds) {
    const std::size_t launch_bytes = std::size_t{input.blocks} * input.stages * kExpertStageBytes;
    GraphTimer timer;
    for (const ExpertVariant& variant : variants) {
        timer.add(launches, [&](std::uint32_t i, cudaStream_t stream) {
            ExpertInput of_launch = input;
            of_launch.packed += i * launch_bytes;
            launch_expert_probe(variant, of_launch, stream);
        });
    }
    return per_launch(timer.interleaved_us(rounds), launches);
}

}  // namespace musetrace::probe
