// One rank's packed weights, as Python hands them over (musetrace/muse/sharding.py has the shapes). The arrays
// belong to Python and outlive the device.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "cpu/numbers.h"

namespace musetrace::cpu {

enum class Format : std::uint8_t { kBf16, kNvfp4, kFloat32 };

// Row-major matrix of `rows` x `k` in one of three formats. NVFP4: low nibble first, one e4m3 scale per 16.
struct Matrix {
    Format format = Format::kBf16;
    std::uint32_t rows = 0;
    std::uint32_t k = 0;
    const char* values = nullptr;
    const char* scales = nullptr;

    std::uint32_t value_bytes() const {
        return format == Format::kBf16 ? 2 * k : format == Format::kFloat32 ? 4 * k : k / 2;
    }
    std::uint32_t scale_bytes() const { return format == Format::kNvfp4 ? k / 16 : 0; }
    std::uint32_t row_bytes() const { return value_bytes() + scale_bytes(); }

    // Stage image: all values of the rows, then all their scales.
    void copy_rows(std::uint32_t first, std::uint32_t count, char* stage) const {
        std::memcpy(stage, values + std::size_t{first} * value_bytes(), std::size_t{count} * value_bytes());
        if (format != Format::kNvfp4) return;
        std::memcpy(stage + std::size_t{count} * value_bytes(), scales + std::size_t{first} * scale_bytes(),
                    std::size_t{count} * scale_bytes());
    }

    // Row `index` of a stage image of `count` rows, as floats. e2m1 x e4m3 has at most 6 significant bits, so the
    // product is exact in bf16 and in fp32.
    void unpack_row(const char* stage, std::uint32_t count, std::uint32_t index, float* out) const {
        const char* row = stage + std::size_t{index} * value_bytes();
        if (format == Format::kFloat32) {
            std::memcpy(out, row, std::size_t{k} * 4);
        } else if (format == Format::kBf16) {
            for (std::uint32_t i = 0; i < k; ++i) {
                std::uint16_t bits;
                std::memcpy(&bits, row + 2 * i, 2);
                out[i] = bf16_to_float(bits);
            }
        } else {
            const auto* codes = reinterpret_cast<const std::uint8_t*>(row);
            const auto* scale = reinterpret_cast<const std::uint8_t*>(stage) + std::size_t{count} * value_bytes() +
                                std::size_t{index} * scale_bytes();
            for (std::uint32_t i = 0; i < k; i += 2) {
                const float s = e4m3_table()[scale[i / 16]];
                out[i] = kE2m1[codes[i / 2] & 15] * s;
                out[i + 1] = kE2m1[codes[i / 2] >> 4] * s;
            }
        }
    }
};

// A stack of expert matrices of one shape, with an fp32 scale each (1 for bf16 experts).
struct Experts {
    Matrix first;
    const float* global = nullptr;

    Matrix at(std::uint32_t expert) const {
        Matrix matrix = first;
        matrix.values += std::size_t{expert} * first.rows * first.value_bytes();
        if (matrix.scales != nullptr) matrix.scales += std::size_t{expert} * first.rows * first.scale_bytes();
        return matrix;
    }
    float scale(std::uint32_t expert) const { return global == nullptr ? 1.0f : global[expert]; }
};

struct LayerWeights {
    Matrix qkvg, o, pooler, router, unpooler;
    Experts gate_up;  // rows 2j and 2j + 1 are gate and up of feature j
    Experts down;
    const float* router_bias = nullptr;
    const float* input_norm = nullptr;  // norms as 1 + w
    const float* pre_ffn_norm = nullptr;
    const float* post_ffn_norm = nullptr;
    const float* pre_expert_norm = nullptr;
    const float* post_expert_norm = nullptr;
    const float* attn_alpha = nullptr;
    const float* attn_beta = nullptr;
    const float* ffn_alpha = nullptr;
    const float* ffn_beta = nullptr;
    bool global_attention = false;
};

struct HeadWeights {
    const float* final_norm = nullptr;
    Matrix lm_head;
    Matrix embed;  // of the whole vocabulary; without values where the host embeds
};

struct DraftLayerWeights {
    Matrix qkv, o, gate_up, down;  // gate_up: rows 2j and 2j + 1 are gate and up of feature j
    const float* input_norm = nullptr;
    const float* mlp_norm = nullptr;
    const float* q_norm = nullptr;
    const float* k_norm = nullptr;
};

struct DraftWeights {
    Matrix fc;
    const float* context_norm = nullptr;
    const float* norm = nullptr;
    std::vector<DraftLayerWeights> layers;
};

}  // namespace musetrace::cpu
