// Kernels that look at packed weights: does a word become the right bf16, and does a packed matrix multiply as the
// matrix it was packed from?
#pragma once

#include <cstdint>

namespace musetrace::probe {

// What one lane makes of two fragments: words[2 i], words[2 i + 1] and their scale word scales[i] become the bf16x2
// registers out[8 i] to out[8 i + 7]. Device memory. Returns a cudaError_t.
int run_dequant_words(const std::uint32_t* words, const std::uint32_t* scales, std::uint32_t count, std::uint32_t* out);

enum class PackedFormat { kBf16, kNvfp4 };

// Multiplies a packed matrix of `row_tiles` tiles of 16 rows (a multiple of the units of a stage) and `k` columns by 8
// tokens: `tokens` is bf16 [8][k], `out` fp32 [16 row_tiles][8], the accumulators as they are (NVFP4: with
// kProductExponent in them). One block of one warp for each tile. Device memory. Returns a cudaError_t.
int run_packed_product(PackedFormat format, const char* packed, const std::uint32_t* tokens, std::uint32_t row_tiles,
                       std::uint32_t k, float* out);

}  // namespace musetrace::probe
