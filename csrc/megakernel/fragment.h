// Packed weights: how a weight matrix lies in memory, so that one 16-byte load per lane brings whole A fragments of
// mma.sync.m16n8k16 (weights are A, tokens are B). musetrace/muse/packing.py writes this layout.
//
//   matrix   row blocks in order, each of them its K stages in order; so the stages that a block streams for one row
//            block are one contiguous run
//   stage    what one bulk copy brings: kUnits units of 16 rows, one after the other (bf16: 1, NVFP4: 4). Every 16
//            rows of a stage are contiguous with their scales, so a tile of 32 or 16 rows is one copy too
//   unit     16 rows x stage_k(K); the fragments in order of K, each of them lane by lane; NVFP4: then the scales
//
// stage_k is min(512, K). K is a multiple of it and of kLoadK (NVFP4: of kScaleLoadK). Rows beyond the matrix that
// fill its last row block are zero.
//
// A fragment (PTX ISA, m16n8k16): lane l has group g = l / 4 and t = l % 4, and registers of two bf16, the even k in
// the low half: a0 = (row g, k 2t), a1 = (g + 8, 2t), a2 = (g, 2t + 8), a3 = (g + 8, 2t + 8).
#pragma once

#include <cstdint>

namespace musetrace::megakernel {

inline constexpr std::uint32_t kTileRows = 16;
inline constexpr std::uint32_t kFragmentK = 16;  // also the K of one NVFP4 scale
inline constexpr std::uint32_t kMaxStageK = 512;
inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kLoadBytes = 16;  // one LDS.128 of one lane

constexpr std::uint32_t stage_k(std::uint32_t k) { return k < kMaxStageK ? k : kMaxStageK; }

struct Bf16Unit {
    static constexpr std::uint32_t kUnits = 1;
    static constexpr std::uint32_t kLoadK = kFragmentK;

    static constexpr std::uint32_t bytes(std::uint32_t stage_k) { return kTileRows * stage_k * 2; }
    // Of the 16 bytes with the four registers of `lane`, fragment `step`.
    static constexpr std::uint32_t offset(std::uint32_t step, std::uint32_t lane) {
        return (step * kLanes + lane) * kLoadBytes;
    }
};

struct Nvfp4Unit {
    static constexpr std::uint32_t kUnits = 4;
    static constexpr std::uint32_t kLoadK = 4 * kFragmentK;       // 32 codes of a lane
    static constexpr std::uint32_t kScaleLoadK = 8 * kFragmentK;  // two scales for each of eight fragments

    static constexpr std::uint32_t code_bytes(std::uint32_t stage_k) { return kTileRows * stage_k / 2; }
    static constexpr std::uint32_t bytes(std::uint32_t stage_k) {
        return code_bytes(stage_k) + kTileRows * stage_k / kFragmentK;
    }
    // Of the 16 bytes with one word for each of the fragments 4 `load` to 4 `load` + 3.
    static constexpr std::uint32_t code_offset(std::uint32_t load, std::uint32_t lane) {
        return (load * kLanes + lane) * kLoadBytes;
    }
    // Of the 16 bytes with the scales of fragments 8 `load` to 8 `load` + 7, each of them (row g, row g + 8). The four
    // lanes of a group read the same bytes: a warp touches 128 bytes, one wavefront.
    static constexpr std::uint32_t scale_offset(std::uint32_t stage_k, std::uint32_t load, std::uint32_t lane) {
        return code_bytes(stage_k) + (load * (kLanes / 4) + lane / 4) * kLoadBytes;
    }
};

// The figures of the ring (csrc/megakernel/NOTES.md).
static_assert(Bf16Unit::kUnits * Bf16Unit::bytes(512) == 16384);
static_assert(Nvfp4Unit::kUnits * Nvfp4Unit::bytes(512) == 18432);
static_assert(Bf16Unit::bytes(kFragmentK) == kLanes * kLoadBytes);
static_assert(Nvfp4Unit::code_bytes(Nvfp4Unit::kLoadK) == kLanes * kLoadBytes);
static_assert(Nvfp4Unit::bytes(Nvfp4Unit::kScaleLoadK) % 128 == 0, "units keep the wavefronts of the loads aligned");

// The registers a0 to a3 of one lane.
struct AFragment {
    std::uint32_t reg[4];
};

// Where the bits (sign, e1, e0, m) of a code lie in the lane's word, for each register and the even k; those of the odd
// k lie 16 higher, modulo 32. In register 0 they lie where bf16 has its sign, the low bits of its exponent and the top
// of its mantissa. 1 is that 6 bits lower, 2 is that 4 bits higher (rotated, so its sign is in the other half), and 3
// has the bits that are left, in two pieces. Of all orders of three shifted registers and one of pieces, this one and
// eight others cost least (NOTES.md).
inline constexpr std::uint32_t kCodeBits[4][4] = {{15, 8, 7, 6}, {9, 2, 1, 0}, {19, 12, 11, 10}, {13, 14, 5, 4}};
inline constexpr std::uint32_t kBf16Bits = 0x81C081C0;

// The word's eight codes as bf16 of e2m1 * 2^-126: an exponent field of 0 to 3 means the same in both formats but for
// the bias (1 and 127), and e2m1's subnormal 0.5 becomes bf16's subnormal 2^-127. On the ALU pipe: five LOP3, one
// rotation, one right shift; left shifts go to the multiplier.
constexpr AFragment extract_codes(std::uint32_t word) {
    return {{word & kBf16Bits, (word << 6) & kBf16Bits, (word >> 4 | word << 28) & kBf16Bits,
             ((word << 2) & 0x80C080C0u) | ((word >> 6) & 0x01000100u)}};
}

// A scale byte is ((exponent + 10) << 3) | mantissa of the e4m3 scale, exponent -9 to 8, subnormals normalised; bf16
// bits (byte << 4) + 0x6000 are scale * 2^75. So a product is e2m1 * scale * 2^-51, exact (6 significant bits), and
// the accumulator is multiplied by 2^51, together with the matrix's fp32 scale. A scale of 0 has byte 0 and codes of
// magnitude 0, for byte 0 itself stands for 2^-10.
inline constexpr std::uint32_t kScaleBase = 0x60006000;
inline constexpr std::uint32_t kScaleFactor = 16;
inline constexpr int kProductExponent = -51;

namespace proof {

constexpr std::uint32_t place_code(std::uint32_t code, std::uint32_t reg, std::uint32_t half) {
    std::uint32_t word = 0;
    for (std::uint32_t bit = 0; bit < 4; ++bit) {
        word |= (code >> (3 - bit) & 1u) << (kCodeBits[reg][bit] + 16 * half) % 32;
    }
    return word;
}
// Each code in each place, all other places holding the complement of it.
constexpr bool every_code_comes_out() {
    for (std::uint32_t place = 0; place < 8; ++place) {
        for (std::uint32_t code = 0; code < 16; ++code) {
            std::uint32_t word = 0;
            for (std::uint32_t other = 0; other < 8; ++other) {
                word |= place_code(other == place ? code : ~code & 15u, other / 2, other % 2);
            }
            const std::uint32_t bits = extract_codes(word).reg[place / 2] >> (16 * (place % 2)) & 0xFFFFu;
            if (bits != ((code >> 3) << 15 | (code & 7u) << 6)) return false;
        }
    }
    return true;
}
static_assert(every_code_comes_out());

}  // namespace proof

}  // namespace musetrace::megakernel
