// The half of a stop that both all-reduces share: rows of partial sums go to every rank, the block that owns the
// columns adds them in rank order and hands the sum to all blocks of its rank.
#pragma once

#include <cstdint>

#include "cpu/warp.h"

namespace musetrace::cpu::ops {

// The buffers of one all-reduce within an exchange copy.
struct AllReduce {
    std::vector<std::uint16_t> ExchangeCopy::* partial;  // [rank][token][hidden]
    std::vector<std::uint32_t> ExchangeCopy::* rows;     // [token][hidden]

    // Sender: the block's columns of its rank's partial sum (fp32, rounded to bf16 here) to every rank.
    template <class W>
    void send(W& w, Share columns, const float* sums) const {
        for (std::uint32_t peer = 0; peer < w.shape.ranks; ++peer) {
            std::uint16_t* slots = (w.exchange_of(peer).*partial).data();
            for (std::uint32_t token = 0; token < kTokens; ++token) {
                const std::size_t row = (std::size_t{w.rank_id()} * kTokens + token) * w.shape.hidden;
                for (std::uint32_t column = columns.begin; column < columns.end; ++column) {
                    const float sum = sums[std::size_t{token} * columns.size() + column - columns.begin];
                    SumBf16::send(slots + row + column, float_to_bf16(sum));
                }
            }
        }
    }

    // Group warp: until every rank's part of the warp's tokens and the block's columns is here.
    template <class W>
    void wait_ranks(W& w, std::uint32_t site, Share columns) const {
        const std::uint16_t* slots = (w.exchange().*partial).data();
        for (std::uint32_t peer = 0; peer < w.shape.ranks; ++peer) {
            for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
                const std::size_t row = (std::size_t{peer} * kTokens + token) * w.shape.hidden;
                SumBf16::wait_full(w.waiter, site, slots + row + columns.begin, columns.size());
            }
        }
    }

    // Group warp: the sum over ranks, in rank order, to all blocks of the rank.
    template <class W>
    void sum(W& w, Share columns) const {
        const std::uint16_t* slots = (w.exchange().*partial).data();
        for (std::uint32_t token = w.first_token(); token < w.first_token() + kTokensPerWarp; ++token) {
            for (std::uint32_t column = columns.begin; column < columns.end; ++column) {
                float total = 0.0f;
                for (std::uint32_t peer = 0; peer < w.shape.ranks; ++peer) {
                    const std::size_t row = (std::size_t{peer} * kTokens + token) * w.shape.hidden;
                    total += bf16_to_float(SumBf16::receive(slots + row + column));
                }
                GatherF32::send((w.exchange().*rows).data() + std::size_t{token} * w.shape.hidden + column,
                                float_to_bits(total));
            }
        }
    }

    // Group warp: whole rows of the warp's tokens.
    template <class W>
    void wait_rows(W& w, std::uint32_t site) const {
        const std::size_t first = std::size_t{w.first_token()} * w.shape.hidden;
        GatherF32::wait_full(w.waiter, site, (w.exchange().*rows).data() + first,
                             std::size_t{kTokensPerWarp} * w.shape.hidden);
    }

    template <class W>
    void read_row(const W& w, std::uint32_t token, float* out) const {
        const std::uint32_t* row = (w.exchange().*rows).data() + std::size_t{token} * w.shape.hidden;
        for (std::uint32_t i = 0; i < w.shape.hidden; ++i) out[i] = bits_to_float(GatherF32::receive(row + i));
    }
};

inline constexpr AllReduce kStop1{&ExchangeCopy::partial1, &ExchangeCopy::rows1};
inline constexpr AllReduce kStop5{&ExchangeCopy::partial5, &ExchangeCopy::rows5};

// Centred RMSNorm, rounded to bf16: the operand of the next projection. `weight` is 1 + w.
inline void norm_row(const float* row, const float* weight, std::uint32_t k, float eps, float* out) {
    const float scale = rms_scale(row, k, eps);
    for (std::uint32_t i = 0; i < k; ++i) out[i] = round_bf16(row[i] * scale * weight[i]);
}

}  // namespace musetrace::cpu::ops
