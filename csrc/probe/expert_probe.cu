#include "megakernel/expert_stream.cuh"
#include "musetrace/abi/muse_layer_jobs.h"
#include "probe/expert_probe.cuh"

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

// splitmix64 of the word's number.
__global__ void random_words(std::uint64_t* words, std::size_t count) {
    const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
        std::uint64_t word = (i + 1) * 0x9E3779B97F4A7C15;
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9;
        word = (word ^ word >> 27) * 0x94D049BB133111EB;
        words[i] = word ^ word >> 31;
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

// The first error stays; later calls are not made.
class Calls {
  public:
    template <class Call>
    Calls& then(Call call) {
        if (error_ == cudaSuccess) error_ = call();
        return *this;
    }
    cudaError_t error() const { return error_; }

  private:
    cudaError_t error_ = cudaSuccess;
};

// What a timing run holds; all of it is given back whatever happens.
struct Timing {
    cudaStream_t stream = nullptr;
    cudaEvent_t begin = nullptr, end = nullptr;
    std::vector<cudaGraphExec_t> graphs;

    ~Timing() {
        for (const cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
        if (begin != nullptr) cudaEventDestroy(begin);
        if (end != nullptr) cudaEventDestroy(end);
        if (stream != nullptr) cudaStreamDestroy(stream);
    }

    cudaError_t open() {
        return Calls()
            .then([&] { return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); })
            .then([&] { return cudaEventCreate(&begin); })
            .then([&] { return cudaEventCreate(&end); })
            .error();
    }

    cudaError_t add_graph(const ExpertVariant& variant, ExpertInput input, std::uint32_t launches) {
        cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        if (error != cudaSuccess) return error;
        for (std::uint32_t i = 0; i < launches && error == cudaSuccess; ++i) {
            error = static_cast<cudaError_t>(launch_expert_probe(variant, input, stream));
            input.packed += std::size_t{input.blocks} * input.stages * kExpertStageBytes;
        }
        cudaGraph_t graph = nullptr;
        // Ends the capture after an error too.
        const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
        cudaGraphExec_t ready = nullptr;
        error = Calls()
                    .then([&] { return error; })
                    .then([&] { return ended; })
                    .then([&] { return cudaGraphInstantiate(&ready, graph, 0); })
                    .error();
        if (ready != nullptr) graphs.push_back(ready);
        if (graph != nullptr) cudaGraphDestroy(graph);
        return error;
    }

    cudaError_t run(std::size_t variant, float& ms) {
        return Calls()
            .then([&] { return cudaEventRecord(begin, stream); })
            .then([&] { return cudaGraphLaunch(graphs[variant], stream); })
            .then([&] { return cudaEventRecord(end, stream); })
            .then([&] { return cudaEventSynchronize(end); })
            .then([&] { return cudaEventElapsedTime(&ms, begin, end); })
            .error();
    }
};

}  // namespace

int fit_expert_probe(const ExpertVariant& variant, ExpertFit& fit) {
    const auto kernel = reinterpret_cast<const void*>(kernel_of(variant));
    cudaFuncAttributes attributes{};
    int device = 0, processors = 0, blocks = 0;
    const cudaError_t error =
        Calls()
            .then([&] {
                return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(SharedMemory));
            })
            .then([&] { return cudaFuncGetAttributes(&attributes, kernel); })
            .then([&] { return cudaGetDevice(&device); })
            .then([&] { return cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device); })
            .then([&] {
                return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kExpertThreads,
                                                                     sizeof(SharedMemory));
            })
            .error();
    fit = {blocks * processors, attributes.numRegs, attributes.localSizeBytes, sizeof(SharedMemory)};
    return error;
}

int launch_expert_probe(const ExpertVariant& variant, const ExpertInput& input, cudaStream_t stream) {
    kernel_of(variant)<<<input.blocks, kExpertThreads, sizeof(SharedMemory), stream>>>(input, variant.in_flight_bytes,
                                                                                       kScaleFactor);
    return cudaGetLastError();
}

int fill_random(std::uint64_t* words, std::size_t count) {
    random_words<<<132 * 8, 256>>>(words, count);
    const cudaError_t launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}

int time_expert_probe(const std::vector<ExpertVariant>& variants, const ExpertInput& input, std::uint32_t launches,
                      std::uint32_t rounds, std::vector<std::vector<float>>& us) {
    Timing timing;
    cudaError_t error = timing.open();
    for (std::size_t i = 0; i < variants.size() && error == cudaSuccess; ++i) {
        error = timing.add_graph(variants[i], input, launches);
    }
    us.assign(variants.size(), {});
    const auto run = [&](std::size_t variant, bool keep) {
        float ms = 0;
        if (error == cudaSuccess) error = timing.run(variant, ms);
        if (keep) us[variant].push_back(ms * 1000 / static_cast<float>(launches));
    };
    for (std::uint32_t round = 0; round < rounds + 1; ++round) {  // the first is the warm-up
        for (std::size_t i = 0; i < variants.size(); ++i) run(i, round != 0);
        for (std::size_t i = variants.size(); i-- > 0;) run(i, round != 0);
    }
    return error;
}

}  // namespace musetrace::probe
