// One launch, read as a table: which warp does what, in which order (block_entry.cuh).
#pragma once

#include "megakernel/ops/all_reduce.cuh"
#include "megakernel/ops/attention.cuh"
#include "megakernel/ops/expert_send.cuh"
#include "megakernel/ops/experts.cuh"
#include "megakernel/ops/pooler.cuh"
#include "megakernel/ops/qkv.cuh"
#include "megakernel/ops/reset.cuh"
#include "megakernel/ops/routing.cuh"
#include "megakernel/ops/unpooler.cuh"

namespace musetrace::megakernel {

struct Layer {
    using Params = LayerParams;
    using Shared = SharedMemory;
    template <StampMode kMode, bool kDelays, std::uint32_t kStampRegisters>
    using Warp = megakernel::Warp<kMode, kDelays, kStampRegisters>;
    static constexpr std::uint32_t kGroupStampRegisters = kByPage;

    static __device__ __forceinline__ std::uint32_t reported_rank(const Params& params) { return params.first_rank; }

    // Warp 0: all weights of the block, through the ring, across op boundaries. Nothing it reads is written by a
    // kernel, so it need not wait for the launch before.
    template <class W>
    static __device__ __forceinline__ void loader(W& w) {
        ExpertRing::Producer ring(w.shared.ring, w.params.in_flight_bytes);
        const bool layer = w.params.kind == LaunchKind::kLayer;
#pragma unroll 1
        for (std::uint32_t phase = layer ? ops::kOProj : ops::kQkv; phase < ops::end_phase(w); ++phase) {
            w.forget();
            if (phase == ops::kUnpooler) ops::Experts::load(w, ring);
            ops::load_phase(w, ring, static_cast<ops::Phase>(phase));
            if (phase == ops::kPooler) ops::Pooler::load_router(w, ring);
        }
    }

    // Warps 1 to 3. Warps 1 and 2 bring the rows of tokens that experts read; warp 3 makes the idle exchange copy empty
    // for the next launch, and later sends expert tiles. Together they send dense results to other ranks.
    template <class W>
    static __device__ __forceinline__ void carrier(W& w) {
        if (w.warp == kSenderWarp) {
            w.template job<MuseHopper::exchange_reset>([&] { ops::reset_exchange(w); });
        }
        if (w.params.kind != LaunchKind::kLayer) return;
#pragma unroll 1
        for (std::uint32_t stop = ops::kStop1; stop <= ops::kStop5; ++stop) {
            w.forget();
            if (stop == ops::kStop5) {
                ops::Pooler::send(w);
                if (w.warp == kSenderWarp) {
                    ops::ExpertSend::send(w);
                } else {
                    ops::Experts::input(w);
                }
            }
            ops::send_units(w, static_cast<ops::Stop>(stop));
        }
    }

    // Warps 4-11, while the launch in front may still run.
    template <class W>
    static __device__ __forceinline__ void prefetch(W& w) {
        if (w.params.kind == LaunchKind::kLayer) {
            w.template job<MuseHopper::attention_prefetch>([&] { ops::Attention::prefetch(w); });
        }
    }

    // Warps 4-11: attention, all products, sums and norms.
    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        const auto is_layer = [&] { return w.params.kind == LaunchKind::kLayer; };
        if (is_layer()) ops::Attention::group(w);
        w.phase = is_layer() ? ops::kOProj : ops::kUnpooler;
#pragma unroll 1
        do {
            w.forget();
            if (w.phase == ops::kUnpooler && is_layer()) {
                ops::Routing::group(w);
                w.forget();
                ops::Experts::group(w);
                w.forget();
                ops::Unpooler::combine(w);
            }
            w.forget();
            const auto phase = static_cast<ops::Phase>(w.phase);
            if (is_layer() || phase == ops::kQkv) ops::multiply(w, phase);
            w.forget();
            if (phase == ops::kPooler) {
                ops::Pooler::group(w);
            } else if (phase == ops::kQkv) {
                ops::Qkv::group(w);
            } else {
                if (phase == ops::kUnpooler) w.stamps.flush_page(1);
                ops::all_reduce(w, phase == ops::kOProj ? ops::kStop1 : is_layer() ? ops::kStop5 : ops::kEntryStop);
            }
        } while (++w.phase < ops::end_phase(w));
    }
};

}  // namespace musetrace::megakernel
