#include "megakernel/dequant.cuh"
#include "probe/dequant_probe.cuh"

namespace musetrace::probe {
namespace {

using namespace megakernel;

constexpr std::uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    dequant_words(const std::uint32_t* words, const std::uint32_t* scales, std::uint32_t count, std::uint32_t factor,
                  std::uint32_t* out) {
    const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= count) return;
    const AFragment first = dequantize(words[2 * i], expand_scales<false>(scales[i], factor));
    const AFragment second = dequantize(words[2 * i + 1], expand_scales<true>(scales[i], factor));
    for (std::uint32_t reg = 0; reg < 4; ++reg) {
        out[8 * i + reg] = first.reg[reg];
        out[8 * i + 4 + reg] = second.reg[reg];
    }
}

// A warp's share of a stage: one unit, against the tokens of its K. `tokens` points at the pair (2t, 2t + 1) of the
// lane's token.
__device__ void multiply_unit(const char* unit, Bf16Unit, std::uint32_t stage_k, const std::uint32_t* tokens,
                              std::uint32_t lane, std::uint32_t, float (&sum)[4]) {
    for (std::uint32_t step = 0; step < stage_k / kFragmentK; ++step, tokens += kFragmentK / 2) {
        multiply_add(sum, load_bf16(unit, step, lane), tokens[0], tokens[4]);
    }
}

__device__ void multiply_unit(const char* unit, Nvfp4Unit, std::uint32_t stage_k, const std::uint32_t* tokens,
                              std::uint32_t lane, std::uint32_t factor, float (&sum)[4]) {
    for (std::uint32_t load = 0; load < stage_k / Nvfp4Unit::kScaleLoadK; ++load) {
        const uint4 scales = load_scales(unit, stage_k, load, lane);
        const std::uint32_t scale_words[4] = {scales.x, scales.y, scales.z, scales.w};
#pragma unroll
        for (std::uint32_t half = 0; half < 2; ++half) {
            const uint4 codes = load_codes(unit, 2 * load + half, lane);
            const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
            for (std::uint32_t pair = 0; pair < 2; ++pair, tokens += kFragmentK) {
                const std::uint32_t scale_word = scale_words[2 * half + pair];
                multiply_add(sum, dequantize(words[2 * pair], expand_scales<false>(scale_word, factor)), tokens[0],
                             tokens[4]);
                multiply_add(sum, dequantize(words[2 * pair + 1], expand_scales<true>(scale_word, factor)), tokens[8],
                             tokens[12]);
            }
        }
    }
}

template <class Unit>
__global__ void __launch_bounds__(kLanes)
    packed_product(const char* packed, const std::uint32_t* tokens, std::uint32_t k, std::uint32_t factor, float* out) {
    __shared__ uint4 unit[Bf16Unit::bytes(kMaxStageK) / sizeof(uint4)];
    const std::uint32_t lane = threadIdx.x, group = lane / 4, quad = lane % 4;
    const std::uint32_t length = stage_k(k), unit_bytes = Unit::bytes(length);
    const std::uint32_t row_block = blockIdx.x / Unit::kUnits, tile = blockIdx.x % Unit::kUnits;
    float sum[4] = {};
    for (std::uint32_t stage = 0; stage < k / length; ++stage) {
        const std::size_t index = (std::size_t{row_block} * (k / length) + stage) * Unit::kUnits + tile;
        const auto* source = reinterpret_cast<const uint4*>(packed + index * unit_bytes);
        for (std::uint32_t i = lane; i < unit_bytes / sizeof(uint4); i += kLanes) unit[i] = source[i];
        __syncwarp();
        multiply_unit(reinterpret_cast<const char*>(unit), Unit{}, length,
                      tokens + (group * k + stage * length) / 2 + quad, lane, factor, sum);
        __syncwarp();
    }
    float* rows = out + (std::size_t{blockIdx.x} * kTileRows + group) * 8 + 2 * quad;
    rows[0] = sum[0];
    rows[1] = sum[1];
    rows[8 * 8] = sum[2];
    rows[8 * 8 + 1] = sum[3];
}

int finished() {
    const cudaError_t launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}

}  // namespace

int run_dequant_words(const std::uint32_t* words, const std::uint32_t* scales, std::uint32_t count,
                      std::uint32_t* out) {
    dequant_words<<<(count + kThreads - 1) / kThreads, kThreads>>>(words, scales, count, kScaleFactor, out);
    return finished();
}

int run_packed_product(PackedFormat format, const char* packed, const std::uint32_t* tokens, std::uint32_t row_tiles,
                       std::uint32_t k, float* out) {
    if (format == PackedFormat::kBf16) {
        packed_product<Bf16Unit><<<row_tiles, kLanes>>>(packed, tokens, k, kScaleFactor, out);
    } else {
        packed_product<Nvfp4Unit><<<row_tiles, kLanes>>>(packed, tokens, k, kScaleFactor, out);
    }
    return finished();
}

}  // namespace musetrace::probe
