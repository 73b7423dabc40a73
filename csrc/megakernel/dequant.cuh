// From a stage in shared memory to the matrix instruction: A fragments of bf16 and NVFP4 weights. fragment.h says how
// they lie there and why the numbers are exact.
//
// NVFP4 has to be made bf16 under the stream of its own bytes, so a word of eight codes has a budget (NOTES.md).
#pragma once

#include <cstdint>

#include "megakernel/fragment.h"

namespace musetrace::megakernel {

__device__ __forceinline__ AFragment load_bf16(const char* unit, std::uint32_t step, std::uint32_t lane) {
    const uint4 regs = *reinterpret_cast<const uint4*>(unit + Bf16Unit::offset(step, lane));
    return {{regs.x, regs.y, regs.z, regs.w}};
}

// The words of four fragments.
__device__ __forceinline__ uint4 load_codes(const char* unit, std::uint32_t load, std::uint32_t lane) {
    return *reinterpret_cast<const uint4*>(unit + Nvfp4Unit::code_offset(load, lane));
}

// The scales of eight fragments, two fragments in each word.
__device__ __forceinline__ uint4 load_scales(const char* unit, std::uint32_t stage_k, std::uint32_t load,
                                             std::uint32_t lane) {
    return *reinterpret_cast<const uint4*>(unit + Nvfp4Unit::scale_offset(stage_k, load, lane));
}

// The scales of four of the eight fragments that 16 bytes of scales are for, two fragments in each word.
__device__ __forceinline__ uint2 load_half_scales(const char* unit, std::uint32_t stage_k, std::uint32_t load,
                                                  std::uint32_t half, std::uint32_t lane) {
    return reinterpret_cast<const uint2*>(unit + Nvfp4Unit::scale_offset(stage_k, load, lane))[half];
}

// The scales of one of the two fragments of a scale word as bf16: row g in the low half, row g + 8 in the high half.
// `kSecond` picks the fragment. `factor` is kScaleFactor, handed in where the compiler cannot see its value (a kernel
// argument): knowing it, ptxas makes the multiply-add a shift-add, on the ALU pipe that the extraction needs.
template <bool kSecond>
__device__ __forceinline__ std::uint32_t expand_scales(std::uint32_t word, std::uint32_t factor) {
    return __byte_perm(word, 0, kSecond ? 0x4342 : 0x4140) * factor + kScaleBase;
}

// Both halves of `value` times one half of `scales`. Written with halves, not with a duplicated register: the machine
// instruction picks the half by itself.
template <bool kHigh>
__device__ __forceinline__ std::uint32_t multiply_by_half(std::uint32_t value, std::uint32_t scales) {
    std::uint32_t product;
    if constexpr (kHigh) {
        asm("{ .reg .b16 low, high; .reg .b32 both; mov.b32 {low, high}, %2; mov.b32 both, {high, high};"
            " mul.rn.bf16x2 %0, %1, both; }"
            : "=r"(product)
            : "r"(value), "r"(scales));
    } else {
        asm("{ .reg .b16 low, high; .reg .b32 both; mov.b32 {low, high}, %2; mov.b32 both, {low, low};"
            " mul.rn.bf16x2 %0, %1, both; }"
            : "=r"(product)
            : "r"(value), "r"(scales));
    }
    return product;
}

// e2m1 * scale * 2^kProductExponent of a lane's word of codes, exact. Registers 0 and 2 are row g, 1 and 3 row g + 8.
__device__ __forceinline__ AFragment dequantize(std::uint32_t word, std::uint32_t scales) {
    const AFragment codes = extract_codes(word);
    return {{multiply_by_half<false>(codes.reg[0], scales), multiply_by_half<true>(codes.reg[1], scales),
             multiply_by_half<false>(codes.reg[2], scales), multiply_by_half<true>(codes.reg[3], scales)}};
}

// sum += A B for 16 rows, 8 tokens, 16 k. B: b0 = (k 2t and 2t + 1, token g), b1 = (k 2t + 8 and 2t + 9, token g).
// Sum: 0 and 1 = (row g, tokens 2t and 2t + 1), 2 and 3 = the same of row g + 8.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const AFragment& a, std::uint32_t b0, std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
        " {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a.reg[0]), "r"(a.reg[1]), "r"(a.reg[2]), "r"(a.reg[3]), "r"(b0), "r"(b1));
}

}  // namespace musetrace::megakernel
