// Weight rows through the ring: what the loader copies in and what the group takes out, in the same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/warp.h"

namespace musetrace::cpu::ops {

// Rows of a matrix in one stage: as many as fit, an even number so that a gate row is never parted from its up row.
inline std::uint32_t rows_per_stage(const Matrix& matrix, std::uint32_t stage_bytes) {
    const std::uint32_t fit = stage_bytes / matrix.row_bytes();
    return fit < 2 ? fit : fit & ~1u;
}

// Loader: rows [begin, end) into the ring.
template <class W>
void load_rows(W& w, std::uint32_t site, const Matrix& matrix, Share rows) {
    const std::uint32_t most = rows_per_stage(matrix, w.block.ring.stage_bytes());
    for (std::uint32_t row = rows.begin; row < rows.end; row += most) {
        char* stage = w.block.ring.wait_empty(w.waiter, site, w.cursor);
        matrix.copy_rows(row, std::min(most, rows.end - row), stage);
        w.block.ring.mark_full(w.cursor);
    }
}

// Group: takes rows [begin, end) out of the ring. Each warp gets every eighth unit of `unit` rows of a stage and
// calls take(row, values) with the unit's rows unpacked one after the other.
template <class W, class Take>
void take_rows(W& w, std::uint32_t site, const Matrix& matrix, Share rows, std::uint32_t unit, Take take) {
    const std::uint32_t most = rows_per_stage(matrix, w.block.ring.stage_bytes());
    std::vector<float> values(std::size_t{unit} * matrix.k);
    for (std::uint32_t row = rows.begin; row < rows.end; row += most) {
        const std::uint32_t count = std::min(most, rows.end - row);
        const char* stage = w.block.ring.wait_full(w.waiter, site, w.cursor);
        for (std::uint32_t at = w.group_warp() * unit; at < count; at += kGroupWarps * unit) {
            for (std::uint32_t i = 0; i < unit; ++i) {
                matrix.unpack_row(stage, count, at + i, values.data() + std::size_t{i} * matrix.k);
            }
            take(row + at, values.data());
        }
        w.block.ring.mark_empty(w.cursor);
    }
}

// The wait for an op's first stage has a job of its own; later stages are waited for inside the op's compute job.
template <std::uint32_t kJob, class W>
void wait_first_stage(W& w) {
    w.template job<kJob>([&] { w.block.ring.wait_full(w.waiter, kJob, w.cursor); });
}

// Dense op of 16 tokens: out[token * out_stride + row - rows.begin] = dot(weight row, x row of the token).
template <std::uint32_t kWaitJob, std::uint32_t kComputeJob, class W>
void dense(W& w, const Matrix& matrix, Share rows, const float* x, std::uint32_t x_stride, float* out,
           std::uint32_t out_stride) {
    if (rows.size() == 0) return;
    wait_first_stage<kWaitJob>(w);
    w.template job<kComputeJob>([&] {
        take_rows(w, kComputeJob, matrix, rows, 1, [&](std::uint32_t row, const float* values) {
            for (std::uint32_t token = 0; token < kTokens; ++token) {
                out[std::size_t{token} * out_stride + row - rows.begin] =
                    dot(values, x + std::size_t{token} * x_stride, matrix.k);
            }
        });
    });
}

}  // namespace musetrace::cpu::ops
