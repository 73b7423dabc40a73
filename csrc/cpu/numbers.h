// Number formats and the few vector loops of the host device. Every sum has a fixed order, so a repeat is
// bit-identical.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace musetrace::cpu {

inline float bits_to_float(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline std::uint32_t float_to_bits(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float bf16_to_float(std::uint16_t bits) { return bits_to_float(std::uint32_t{bits} << 16); }

// Round to nearest even, as torch does; NaN stays NaN.
inline std::uint16_t float_to_bf16(float value) {
    const std::uint32_t bits = float_to_bits(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FC0;
    return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float round_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

// e2m1: sign, two exponent bits (bias 1), one mantissa bit.
inline constexpr float kE2m1[16] = {0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                    -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

// e4m3fn: sign, four exponent bits (bias 7), three mantissa bits, no infinity, 0x7F is NaN.
inline float e4m3_to_float(std::uint8_t code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    if ((code & 0x7F) == 0x7F) return NAN;
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                          : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    return code & 0x80 ? -magnitude : magnitude;
}
inline const std::array<float, 256>& e4m3_table() {
    static const std::array<float, 256> table = [] {
        std::array<float, 256> values{};
        for (int code = 0; code < 256; ++code) values[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
        return values;
    }();
    return table;
}

using Vec4 = float __attribute__((vector_size(16)));
inline Vec4 load4(const float* address) {
    Vec4 value;
    std::memcpy(&value, address, sizeof value);
    return value;
}
inline float sum4(Vec4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// k is a multiple of 16 (Shape is checked before the first launch).
inline float dot(const float* a, const float* b, std::uint32_t k) {
    Vec4 sum[4] = {};
    for (std::uint32_t i = 0; i < k; i += 16) {
        for (std::uint32_t j = 0; j < 4; ++j) sum[j] += load4(a + i + 4 * j) * load4(b + i + 4 * j);
    }
    return sum4((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

inline float rms_scale(const float* row, std::uint32_t k, float eps) {
    return 1.0f / std::sqrt(dot(row, row, k) / static_cast<float>(k) + eps);
}

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace musetrace::cpu
