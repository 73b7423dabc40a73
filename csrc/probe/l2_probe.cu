// How fast all SMs read what L2 may or may not hold.
#include "probe/bulk_stream.cuh"
#include "probe/device_probe.h"
#include "probe/random_words.h"
#include "probe/stream_once.cuh"

namespace musetrace::probe {
namespace {

// Several times L2.
constexpr std::size_t kOtherBytes = std::size_t{512} << 20;
// From when all blocks are there until they begin; by then prefetches have ended.
constexpr std::uint64_t kStartNs = 60'000;

struct L2Input {
    const char* data;
    std::uint64_t pieces;
    const char* other;  // a piece for each block
    L2State state;
    std::uint32_t* arrived;   // one zero word
    std::uint64_t* start_ns;  // one zero word
    std::uint64_t* times;     // [blocks][common begin, own end]
    abi::WaitReport* report;
};

// The block's pieces, the same ones each time.
__device__ __forceinline__ void read_pieces(PieceRing& ring, sync::RingCursor& cursor, const char* data,
                                            std::uint64_t pieces) {
    std::uint64_t piece = blockIdx.x;
    stream_pieces(ring, cursor, kMostPieces, [&]() -> const char* {
        const char* next = piece < pieces ? data + piece * kPieceBytes : nullptr;
        piece += gridDim.x;
        return next;
    });
}

__device__ __forceinline__ void prefetch_own_pieces(const L2Input& input) {
    if (threadIdx.x != 0) return;
#pragma unroll 1
    for (std::uint64_t piece = blockIdx.x; piece < input.pieces; piece += gridDim.x) {
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(input.data + piece * kPieceBytes),
                     "r"(kPieceBytes)
                     : "memory");
    }
}

// Once all blocks are there, the first sets a time for all of them. The warp.
__device__ __forceinline__ std::uint64_t agree_on_start(const sync::Waiter& waiter, const L2Input& input) {
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(input.arrived) : "memory");
    __syncwarp();
    if (blockIdx.x == 0) {
        const auto arrived = [&] { return std::uint64_t{sync::GpuArch::load_relaxed(input.arrived)}; };
        sync::wait<sync::GpuArch>(waiter, kBlocksArrive, gridDim.x, arrived, sync::GpuArch::pause);
        if (threadIdx.x == 0) {
            asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(input.start_ns), "l"(stamp_clock_ns() + kStartNs)
                         : "memory");
        }
        __syncwarp();
    }
    std::uint64_t start_ns = 0;
    const auto told = [&] {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(start_ns) : "l"(input.start_ns) : "memory");
        return start_ns;
    };
    sync::wait<sync::GpuArch>(waiter, kBlocksArrive, 1, told, sync::GpuArch::pause);
    return start_ns;
}

__global__ void __launch_bounds__(abi::kLanesPerWarp, 1) read_at_once(const __grid_constant__ L2Input input) {
    extern __shared__ __align__(128) char bytes[];
    PieceRing& ring = *reinterpret_cast<PieceRing*>(bytes);
    if (threadIdx.x == 0) ring.init(input.report);
    __syncthreads();
    const bool loads = input.state == L2State::kLoaded;
    sync::RingCursor cursor;
    std::uint64_t start_ns = 0;
    // One call for all: whatever L2 holds, what is timed has its code in the instruction cache.
#pragma unroll 1
    for (std::uint32_t pass = 0; pass < 3; ++pass) {
        if (pass == 2) {
            if (input.state == L2State::kPrefetched) prefetch_own_pieces(input);
            start_ns = agree_on_start(ring.waiter, input);
            spin_until(start_ns);
        }
        const std::uint64_t pieces = pass == 0 ? gridDim.x : pass == 1 && !loads ? 0 : input.pieces;
        read_pieces(ring, cursor, pass == 0 ? input.other : input.data, pieces);
    }
    if (threadIdx.x == 0) {
        input.times[2 * blockIdx.x] = start_ns;
        input.times[2 * blockIdx.x + 1] = stamp_clock_ns();
    }
}

}  // namespace

Counts measure_l2(L2State state, std::size_t bytes, std::uint32_t launches) {
    require(bytes >= kPieceBytes && launches >= 1 && launches <= 1000,
            "choose 16384 bytes and more, and 1 to 1000 launches");
    const LaunchShape shape{num_sms(), abi::kLanesPerWarp, sizeof(PieceRing)};
    const DeviceBuffer<char> data(bytes / kPieceBytes * kPieceBytes), other(kOtherBytes);
    fill_random(data.get(), data.count());
    fill_random(other.get(), other.count());
    const DeviceBuffer<std::uint64_t> times(std::size_t{shape.blocks} * 2);
    const Report report;
    prepare(stream_once, shape);
    prepare(read_at_once, shape);
    Counts all{{launches, shape.blocks, 2}, {}};
    for (std::uint32_t i = 0; i < launches; ++i) {
        const DeviceBuffer<std::uint32_t> arrived(1);
        const DeviceBuffer<std::uint64_t> start_ns(1);
        launch(stream_once, shape, nullptr, other.get(), other.count() / kPieceBytes, kMostPieces, report.get());
        launch(read_at_once, shape, nullptr,
               L2Input{data.get(), data.count() / kPieceBytes, other.get(), state, arrived.get(), start_ns.get(),
                       times.get(), report.get()});
        report.check_all();
        const std::vector<std::uint64_t> of_launch = times.to_host();
        all.values.insert(all.values.end(), of_launch.begin(), of_launch.end());
    }
    return all;
}

}  // namespace musetrace::probe
