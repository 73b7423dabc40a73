// The all-reduces: behind fc, o and down every rank sends its partial sums, and the block that owns the columns adds
// them in rank order. Behind o and down that is the branch of the residual stream. A norm over the whole row follows:
// each block sends the sum of squares of its columns to all blocks of the rank.
#pragma once

#include "megakernel/draft/ops/product.cuh"
#include "megakernel/ops/column_sums.cuh"

namespace musetrace::megakernel::draft::ops {

using megakernel::ops::first_column;
using megakernel::ops::kUnitBytes;
using megakernel::ops::partial_slots;

// Units of a block that are received and sent side by side: as many as a block of a whole GPU has.
inline constexpr std::uint32_t kTogether = 2;

enum Stop : std::uint32_t { kFcStop, kStop1, kStop2 };

struct StopData {
    std::uint64_t partial, sums, x;  // in the exchange
    const float* norm;
    float* residual;  // null: there is none
};

template <class W>
__device__ __forceinline__ StopData stop_data(const W& w, Stop stop) {
    const DraftExchange& at = w.params.exchange;
    if (stop == kStop2) return {at.partial2, at.sums2, at.x2, w.rank.norm2, w.rank.residual};
    return {at.partial1, at.sums1, at.x1, w.rank.norm1, stop == kFcStop ? nullptr : w.rank.residual};
}

// Warps 1 to 3: the block's units of the outbox to all ranks.
template <class W>
__device__ __forceinline__ void send_units(W& w, Stop stop) {
    const DraftSizes& s = w.shape();
    const Share units = w.shared.shares.units;
    if (units.size() == 0) return;
    const Job wait =
        pick_draft_job<MuseDraft::fc_wait_output, MuseDraft::o_proj_wait_output, MuseDraft::down_wait_output>(stop);
    const Job send = pick_draft_job<MuseDraft::fc_send, MuseDraft::o_proj_send, MuseDraft::down_send>(stop);
    w.begin_sending(wait);
    // exchange.h says why nothing of a context launch may be sent before that.
    if (stop == kFcStop) w.shared.reset_done.wait_parity(w.waiter, wait.site, 0);
    w.shared.outbox_full.wait_parity(w.waiter, wait.site, stop == kStop2 ? 1 : 0);
    w.next_sending(wait, send);
    const std::uint64_t partial = stop == kStop2 ? w.params.exchange.partial2 : w.params.exchange.partial1;
    const char* outbox = reinterpret_cast<const char*>(w.shared.outbox);
    // A thread has its part of the outbox, and sends it to all.
#pragma unroll 1
    for (std::uint32_t at = w.sending_thread() * kLoadBytes; at < units.size() * kUnitBytes;
         at += kSendingWarps * kLanes * kLoadBytes) {
        const uint4 words = *reinterpret_cast<const uint4*>(outbox + at);
#pragma unroll
        for (std::uint32_t peer = 0; peer < kMaxRanks; ++peer) {
            if (peer < s.ranks) sync::send_slots(partial_slots(w, units.begin, partial, peer) + at, words);
        }
    }
    w.end_sending(send);
    if (stop == kStop1) w.shared.outbox_empty.arrive_as_warp(w.lane);
}

// Group: own columns from all ranks, added to the residual stream; returns the thread's sum of squares. Two units at a
// time: a unit by itself costs a way to L2 and back more.
template <class W>
__device__ __forceinline__ float receive_branch(W& w, std::uint32_t site, const StopData& data) {
    const DraftSizes& s = w.shape();
    const Share units = w.shared.shares.units;
    const std::uint32_t token = w.group_thread() / kChunkWords;
    const char* partial = w.slots(data.partial) + w.group_thread() * 4;
    float squares = 0.0f;
#pragma unroll 1
    for (std::uint32_t first = 0; first < units.size(); first += kTogether) {
        const auto number = [&](std::uint32_t i) { return min(first + i, units.size() - 1); };
        float2 out[kTogether] = {};
        std::uint32_t words[kTogether * kMaxRanks];
#pragma unroll
        for (std::uint32_t i = 0; i < kTogether; ++i) {
            const std::uint32_t column = first_column(w, units.begin + number(i));
            if (data.residual != nullptr) out[i] = load_pair(data.residual + std::size_t{token} * s.hidden, column);
        }
        sync::receive_slots<sync::ZerosBf16>(w.waiter, site, words, kTogether * kMaxRanks, [&](std::uint32_t i) {
            const std::size_t unit = units.begin + number(i / kMaxRanks), rank = min(i % kMaxRanks, s.ranks - 1);
            return partial + unit * kUnitBytes + rank * s.hidden * kTokens * 2;
        });
#pragma unroll
        for (std::uint32_t i = 0; i < kTogether; ++i) {
            float2 sum{0.0f, 0.0f};
#pragma unroll
            for (std::uint32_t rank = 0; rank < kMaxRanks; ++rank) {
                const float2 value = unpack_bf16(rank < s.ranks ? words[i * kMaxRanks + rank] : 0);
                sum = {sum.x + value.x, sum.y + value.y};
            }
            if (first + i >= units.size()) continue;
            out[i] = {out[i].x + sum.x, out[i].y + sum.y};
            const std::size_t at = std::size_t{token} * s.hidden + first_column(w, units.begin + first + i);
            if (data.residual != nullptr) *reinterpret_cast<float2*>(data.residual + at) = out[i];
            w.shared.branch[first + i][w.group_thread()] = out[i];
            squares += out[i].x * out[i].x + out[i].y * out[i].y;
        }
    }
    return squares;
}

// Group: the block's part of the rows' sums to all blocks of the rank.
template <class W>
__device__ __forceinline__ void send_squares(W& w, std::uint64_t sums, float squares) {
#pragma unroll
    for (std::uint32_t step = 1; step < kChunkWords; step *= 2) squares += __shfl_xor_sync(kAllLanes, squares, step);
    if (w.lane % kChunkWords != 0) return;
    char* to = w.slots(sums) + (w.block() * kTokens + w.group_thread() / kChunkWords) * 4;
    sync::send_slots(to, __float_as_uint(squares));
}

// Group: the sums of all blocks, in a fixed order; thread 16 token + place gets its token's.
template <class W>
__device__ __forceinline__ float receive_squares(W& w, std::uint32_t site, std::uint64_t sums) {
    constexpr std::uint32_t kLoads = 8, kParts = kGroupThreads / kTokens;
    const std::uint32_t token = w.group_thread() % kTokens, part = w.group_thread() / kTokens;
    // At most 128 of them (power_of_two_within(132)): one round.
    const std::uint32_t count = sync::count_below(part, w.plan().dense_blocks, kParts);
    std::uint32_t words[kLoads];
    const char* from = w.slots(sums) + w.group_thread() * 4;
    sync::receive_slots<sync::OnesF32>(w.waiter, site, words, count,
                                       [&](std::uint32_t i) { return from + i * kGroupThreads * 4; });
    float total = 0.0f;
#pragma unroll
    for (std::uint32_t i = 0; i < kLoads; ++i) total += i < count ? __uint_as_float(words[i]) : 0.0f;
    float* scratch = w.scratch();
    scratch[part * kTokens + token] = total;
    w.meet(site);
    float all = 0.0f;
#pragma unroll
    for (std::uint32_t i = 0; i < kParts; ++i) all += scratch[i * kTokens + w.group_thread() / kChunkWords];
    return all;
}

// Group: the norm's weights of two units, asked for in front of a wait.
struct NormWeights {
    float2 of_unit[kTogether];
    template <class W>
    __device__ __forceinline__ NormWeights(const W& w, const float* norm, std::uint32_t first) {
        const Share units = w.shared.shares.units;
#pragma unroll
        for (std::uint32_t i = 0; i < kTogether; ++i) {
            of_unit[i] = load_pair(norm, first_column(w, units.begin + min(first + i, units.size() - 1)));
        }
    }
};

// Group: the normed columns to all blocks of the rank; `weights` of the first units.
template <class W>
__device__ __forceinline__ void send_normed(W& w, const StopData& data, NormWeights weights, float squares) {
    const DraftSizes& s = w.shape();
    const Share units = w.shared.shares.units;
    const float norm = rsqrtf(__fdividef(squares, static_cast<float>(s.hidden)) + s.rms_eps);
#pragma unroll 1
    for (std::uint32_t first = 0; first < units.size(); first += kTogether) {
        if (first != 0) weights = {w, data.norm, first};
#pragma unroll
        for (std::uint32_t i = 0; i < kTogether; ++i) {
            if (first + i >= units.size()) continue;
            const std::size_t unit = units.begin + first + i;
            const float2 weight = weights.of_unit[i], out = w.shared.branch[first + i][w.group_thread()];
            sync::send_slots(w.slots(data.x) + (unit * kGroupThreads + w.group_thread()) * 4,
                             pack_bf16(out.x * norm * weight.x, out.y * norm * weight.y));
        }
    }
}

// Group: the stop. Blocks that own no columns have nothing to do here.
template <class W>
__device__ __forceinline__ void all_reduce(W& w, Stop stop) {
    if (w.shared.shares.units.size() == 0) return;
    const StopData data = stop_data(w, stop);
    const Job wait_ranks =
        pick_draft_job<MuseDraft::fc_wait_ranks, MuseDraft::stop1_wait_ranks, MuseDraft::stop2_wait_ranks>(stop);
    w.begin(wait_ranks);
    const float squares = receive_branch(w, wait_ranks.site, data);
    const Job sum = pick_draft_job<MuseDraft::fc_sum, MuseDraft::stop1_sum, MuseDraft::stop2_sum>(stop);
    w.next(wait_ranks, sum);
    send_squares(w, data.sums, squares);
    const Job wait_rows =
        pick_draft_job<MuseDraft::fc_wait_rows, MuseDraft::stop1_wait_rows, MuseDraft::stop2_wait_rows>(stop);
    w.next(sum, wait_rows);
    const NormWeights weights(w, data.norm, 0);
    const float all = receive_squares(w, wait_rows.site, data.sums);
    const Job norm = pick_draft_job<MuseDraft::fc_norm, MuseDraft::stop1_norm, MuseDraft::stop2_norm>(stop);
    w.next(wait_rows, norm);
    send_normed(w, data, weights, all);
    w.end(norm);
}

}  // namespace musetrace::megakernel::draft::ops
