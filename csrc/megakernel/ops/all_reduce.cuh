// Stops 1 and 5: every rank sends its partial sums; the block that owns the columns adds them in rank order. Then a
// norm of the branch over the whole row, the residual gate, and the next norm over the whole row, with one exchange
// between the blocks instead of two:
//
//   out = alpha r + beta p s            p the branch, s = 1 / sqrt(mean(p^2) + post_eps), r the residual
//   mean(out^2) = mean((alpha r)^2) + 2 s mean(alpha r beta p) + s^2 mean((beta p)^2)
//
// so a block sends four sums for each token: p^2, (alpha r)^2, alpha r beta p, (beta p)^2. The entry of a step, the
// norm of the embedded tokens, is stop 5 with a branch of zeros, alpha 1 and beta 0: out is r. The zeros come from all
// ranks, for that is how a rank hears of the others' resets (exchange.h).
#pragma once

#include "megakernel/ops/column_sums.cuh"
#include "megakernel/ops/dense.cuh"

namespace musetrace::megakernel::ops {

enum Stop : std::uint32_t { kStop1, kStop5, kEntryStop };

struct StopData {
    std::uint64_t partial, sums, x;  // in the exchange
    const float* scale;              // of the branch before its norm, rounded to bf16; null for none
    const float* alpha;
    const float* beta;
    const float* residual;
    float* out;
    const float* norm;  // of the output
};

template <class W>
__device__ __forceinline__ StopData stop_data(const W& w, Stop stop) {
    const RankParams& rank = w.rank;
    const ExchangeLayout& at = w.params.exchange;
    const bool first = stop == kStop1;
    StopData data;
    data.partial = first ? at.partial1 : at.partial5;
    data.sums = first ? at.sums1 : at.sums5;
    data.x = first ? at.x1 : at.x5;
    data.scale = first ? nullptr : rank.layer.post_ffn_norm;
    data.alpha = first ? rank.layer.attn_alpha : rank.layer.ffn_alpha;
    data.beta = first ? rank.layer.attn_beta : rank.layer.ffn_beta;
    data.residual = stop == kStop5 ? rank.middle_residual : rank.residual;
    data.out = first ? rank.middle_residual : rank.next_residual;
    data.norm = first ? rank.layer.pre_ffn_norm : rank.next.norm;
    return data;
}

// Warps 1 to 3: the block's units of the outbox to all ranks.
template <class W>
__device__ __forceinline__ void send_units(W& w, Stop stop) {
    const Shape& s = w.shape();
    const Share units = w.shared.shares.units;
    if (units.size() == 0) return;
    const Job wait = pick_job<MuseHopper::o_proj_wait_output, MuseHopper::unpooler_wait_output>(stop);
    const Job send = pick_job<MuseHopper::o_proj_send, MuseHopper::unpooler_send>(stop);
    w.begin_sending(wait);
    wait_outbox_full(w, wait.site, outbox_use(w, stop == kStop1 ? kOProj : kUnpooler));
    w.next_sending(wait, send);
    const std::uint64_t partial = stop == kStop1 ? w.params.exchange.partial1 : w.params.exchange.partial5;
    const bool lost = stop == kStop1 && w.params.lost_block == w.block() && w.waiter.rank == 0;
    const char* outbox = w.shared.pool + kOutboxAt;
#pragma unroll 1
    for (std::uint32_t peer = 0; peer < s.ranks && !lost; ++peer) {
        // The first unit is read in each round, not kept in a register.
        send_outbox(w, outbox, units.size(), partial_slots(w, w.shared.shares.units.begin, partial, peer));
    }
    w.end_sending(send);
    // Behind stop 5 nobody waits for it, and a late warp would take this phase for an earlier one.
    if (stop == kStop1) mark_outbox_empty(w);
}

struct RowSums {
    float value[kSumFloats] = {};
    __device__ __forceinline__ void add(float2 p, float2 r, float2 alpha, float2 beta) {
        const float ar[2] = {alpha.x * r.x, alpha.y * r.y}, bp[2] = {beta.x * p.x, beta.y * p.y};
        value[0] += p.x * p.x + p.y * p.y;
        value[1] += ar[0] * ar[0] + ar[1] * ar[1];
        value[2] += ar[0] * bp[0] + ar[1] * bp[1];
        value[3] += bp[0] * bp[0] + bp[1] * bp[1];
    }
};

// Group: the block's part of the sums to all blocks of the rank.
template <class W>
__device__ __forceinline__ void send_sums(W& w, std::uint64_t sums, RowSums& own) {
#pragma unroll
    for (float& value : own.value) {
#pragma unroll
        for (std::uint32_t step = 1; step < kChunkWords; step *= 2) value += __shfl_xor_sync(kAllLanes, value, step);
    }
    if (w.lane % kChunkWords != 0) return;
    char* to = w.slots(sums) + (std::size_t{w.block()} * kTokens + w.group_thread() / kChunkWords) * kSumFloats * 4;
    sync::send_slots(to, reinterpret_cast<const uint4&>(own.value));
}

// Group: the sums of all blocks, in a fixed order; thread 16 token + place gets its token's.
template <class W>
__device__ __forceinline__ RowSums receive_sums(W& w, std::uint32_t site, std::uint64_t sums) {
    constexpr std::uint32_t kLoads = 8, kParts = kGroupThreads / kTokens;
    const std::uint32_t token = w.group_thread() % kTokens, part = w.group_thread() / kTokens;
    // At most 128 of them (power_of_two_within(132)): one round.
    const std::uint32_t count = sync::count_below(part, w.plan().dense_blocks, kParts);
    uint4 words[kLoads];
    const char* from = w.slots(sums) + w.group_thread() * kSumFloats * 4;
    sync::receive_slots<sync::OnesF32>(w.waiter, site, words, count,
                                       [&](std::uint32_t i) { return from + i * kGroupThreads * kSumFloats * 4; });
    float4 total{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (std::uint32_t i = 0; i < kLoads; ++i) {
        if (i >= count) continue;
        total.x += __uint_as_float(words[i].x);
        total.y += __uint_as_float(words[i].y);
        total.z += __uint_as_float(words[i].z);
        total.w += __uint_as_float(words[i].w);
    }
    auto* scratch = reinterpret_cast<float4*>(w.scratch());
    scratch[part * kTokens + token] = total;
    w.meet(site);
    RowSums all;
#pragma unroll 4
    for (std::uint32_t i = 0; i < kParts; ++i) {
        const float4 value = scratch[i * kTokens + w.group_thread() / kChunkWords];
        all.value[0] += value.x;
        all.value[1] += value.y;
        all.value[2] += value.z;
        all.value[3] += value.w;
    }
    return all;
}

// Group: own columns behind the sums: the new residual stream, and its norm to all blocks.
template <class W>
__device__ __forceinline__ void finish_units(W& w, const StopData& data, const RowSums& sums) {
    const Shape& s = w.shape();
    const Share units = w.shared.shares.units;
    const std::uint32_t token = w.group_thread() / kChunkWords;
    const float part = __fdividef(1.0f, static_cast<float>(s.hidden));
    const float scale = rsqrtf(sums.value[0] * part + s.post_eps);
    const float mean = (sums.value[1] + 2.0f * scale * sums.value[2] + scale * scale * sums.value[3]) * part;
    const float norm = rsqrtf(mean + s.rms_eps);
    const auto* branch = reinterpret_cast<const float2*>(w.shared.pool + kBranchAt) + w.group_thread();
#pragma unroll 1
    for (std::uint32_t i = 0; i < units.size(); ++i) {
        const std::uint32_t unit = units.begin + i, column = first_column(w, unit);
        float2 out = load_pair(data.residual, std::size_t{token} * s.hidden + column);
        const float2 weight = load_pair(data.norm, column);
        const float2 alpha = load_pair(data.alpha, column), beta = load_pair(data.beta, column);
        const float2 p = branch[i * kGroupThreads];
        out = {alpha.x * out.x + beta.x * (p.x * scale), alpha.y * out.y + beta.y * (p.y * scale)};
        *reinterpret_cast<float2*>(data.out + std::size_t{token} * s.hidden + column) = out;
        sync::send_slots(w.slots(data.x) + (std::size_t{unit} * kGroupThreads + w.group_thread()) * 4,
                         pack_bf16(out.x * norm * weight.x, out.y * norm * weight.y));
    }
}

// Group: the branch's columns from all ranks, each thread its own, and its sums. What else the sums take is asked for
// before the wait.
template <class W>
__device__ __forceinline__ void receive_branch(W& w, std::uint32_t site, const StopData& data, RowSums& sums) {
    const Shape& s = w.shape();
    const Share units = w.shared.shares.units;
    const std::uint32_t token = w.group_thread() / kChunkWords;
    auto* branch = reinterpret_cast<float2*>(w.shared.pool + kBranchAt) + w.group_thread();
#pragma unroll 1
    for (std::uint32_t i = 0; i < units.size(); ++i, branch += kGroupThreads) {
        const std::uint32_t column = first_column(w, units.begin + i);
        const float2 residual = load_pair(data.residual, std::size_t{token} * s.hidden + column);
        const float2 alpha = load_pair(data.alpha, column), beta = load_pair(data.beta, column);
        const float2 scale = data.scale != nullptr ? load_pair(data.scale, column) : float2{1.0f, 1.0f};
        float2 p = receive_columns(w, site, data.partial, units.begin + i);
        if (data.scale != nullptr) p = {round_bf16(scale.x * p.x), round_bf16(scale.y * p.y)};
        *branch = p;
        sums.add(p, residual, alpha, beta);
    }
}

// Group: the stop. Blocks that own no columns have nothing to do here.
template <class W>
__device__ __forceinline__ void all_reduce(W& w, Stop stop) {
    if (w.shared.shares.units.size() == 0) return;
    const StopData data = stop_data(w, stop);
    RowSums sums;
    const Job wait_ranks =
        pick_job<MuseHopper::stop1_wait_ranks, MuseHopper::stop5_wait_ranks, MuseHopper::entry_wait_ranks>(stop);
    w.begin(wait_ranks);
    receive_branch(w, wait_ranks.site, data, sums);
    const Job sum = pick_job<MuseHopper::stop1_sum, MuseHopper::stop5_sum, MuseHopper::entry_sum>(stop);
    w.next(wait_ranks, sum);
    send_sums(w, data.sums, sums);
    const Job wait_rows =
        pick_job<MuseHopper::stop1_wait_rows, MuseHopper::stop5_wait_rows, MuseHopper::entry_wait_rows>(stop);
    w.next(sum, wait_rows);
    const RowSums all = receive_sums(w, wait_rows.site, data.sums);
    const Job norm = pick_job<MuseHopper::stop1_norm, MuseHopper::stop5_norm, MuseHopper::entry_norm>(stop);
    w.next(wait_rows, norm);
    finish_units(w, data, all);
    w.end(norm);
}

}  // namespace musetrace::megakernel::ops
