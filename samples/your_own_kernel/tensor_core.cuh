// What a warp does with tensor cores: 64 x 64 of a product, out of tiles in shared memory.
#pragma once

#include <cuda_bf16.h>

// Four 8 x 8 matrices; lane l names row l % 8 of matrix l / 8. Volatile, so that it stays behind the wait for its data.
__device__ inline void load_matrices(unsigned (&to)[4], const __nv_bfloat16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

__device__ inline void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b_low, unsigned b_high) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

// sum += A * B^T for 64 rows of A and 64 of B, each with kDepth elements at a distance of kRow from the next row's.
template <int kDepth, int kRow>
__device__ void multiply_tile(float (&sum)[4][8][4], const __nv_bfloat16* a, const __nv_bfloat16* b) {
    const int lane = threadIdx.x % 32;
    a += lane % 16 * kRow + lane / 16 * 8;
    b += (lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 8;
#pragma unroll
    for (int depth = 0; depth < kDepth; depth += 16) {
        unsigned rows[4][4], columns[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_matrices(rows[i], a + i * 16 * kRow + depth);
            load_matrices(columns[i], b + i * 16 * kRow + depth);
        }
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const int row = i / 8, column = i % 8;
            multiply_add(sum[row][column], rows[row], columns[column / 2][column % 2 * 2],
                         columns[column / 2][column % 2 * 2 + 1]);
        }
    }
}

// The 64 x 64 sums, into rows of n floats.
__device__ inline void store_tile(float* to, int n, const float (&sum)[4][8][4]) {
    const int lane = threadIdx.x % 32;
    to += static_cast<size_t>(lane / 4) * n + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        const int row = i / 8 % 4, column = i % 8, half = i / 32;
        float2 pair = {sum[row][column][2 * half], sum[row][column][2 * half + 1]};
        *reinterpret_cast<float2*>(to + static_cast<size_t>(row * 16 + half * 8) * n + column * 8) = pair;
    }
}
