// The draft kernel's entry, and one launch read as a table: which warp does what, in which order.
#pragma once

#include "megakernel/block_entry.cuh"
#include "megakernel/draft/kernel.cuh"
#include "megakernel/draft/ops/attention.cuh"
#include "megakernel/draft/ops/embed.cuh"
#include "megakernel/draft/ops/product.cuh"
#include "megakernel/draft/ops/reset.cuh"
#include "megakernel/draft/ops/rows.cuh"
#include "megakernel/draft/ops/stop.cuh"

namespace musetrace::megakernel::draft {

struct Draft {
    using Params = DraftParams;
    using Shared = SharedMemory;
    template <StampMode kMode, bool kDelays, std::uint32_t kStampRegisters>
    using Warp = draft::Warp<kMode, kDelays, kStampRegisters>;
    static constexpr std::uint32_t kGroupStampRegisters = abi::max_registers<MuseDraft>();

    static __device__ __forceinline__ std::uint32_t reported_rank(const Params& params) {
        return kReportedRank + params.first_rank;
    }

    // Warp 0: all weights of the block, through the ring. Nothing it reads is written by a kernel, so it need not wait
    // for the launch before.
    template <class W>
    static __device__ __forceinline__ void loader(W& w) {
        Ring::Producer ring(w.shared.ring, w.params.in_flight_bytes);
#pragma unroll 1
        for (std::uint32_t phase = ops::kFirst; phase != ops::kEnd; phase = ops::next_phase(w, phase)) {
            ops::load_phase(w, ring, static_cast<ops::Phase>(phase));
        }
    }

    // Warps 1 to 3 make the idle exchange copy empty for the next launch, and send sums to other ranks.
    template <class W>
    static __device__ __forceinline__ void carrier(W& w) {
        ops::reset_exchange(w);
        const std::uint32_t last = w.is_context() ? ops::kFcStop : ops::kStop2;
#pragma unroll 1
        for (std::uint32_t stop = w.is_context() ? ops::kFcStop : ops::kStop1; stop <= last; ++stop) {
            ops::send_units(w, static_cast<ops::Stop>(stop));
        }
    }

    // Warps 4 to 11, while the launch in front may still run.
    template <class W>
    static __device__ __forceinline__ void prefetch(W& w) {
        if (!w.is_context()) {
            w.template job<MuseDraft::attention_prefetch>([&] { ops::Attention::prefetch(w); });
        }
    }

    // Warps 4 to 11: attention, all products, sums and norms. In a context launch the product for q, k and v of the
    // first layer, which needs the embedding alone, comes before the stop of fc, and hides it.
    template <class W>
    static __device__ __forceinline__ void group(W& w) {
        if (w.is_context()) {
            ops::embed(w);
        } else {
            ops::Attention::group(w);
        }
#pragma unroll 1
        for (w.phase = ops::kFirst; w.phase != ops::kEnd; w.phase = ops::next_phase(w, w.phase)) {
            w.forget();
            const auto phase = static_cast<ops::Phase>(w.phase);
            ops::multiply(w, phase);
            w.forget();
            if (phase == (w.is_context() ? ops::kQkv : ops::kFirst) || phase == ops::kDown) {
                ops::all_reduce(w, w.is_context() ? ops::kFcStop : phase == ops::kFirst ? ops::kStop1 : ops::kStop2);
            } else if (phase == ops::kGateUp) {
                ops::activate(w);
            } else if (phase == (w.is_context() ? ops::kContext : ops::kQkv)) {
                if (w.is_context()) ops::finish_context(w);
                ops::finish_qkv(w);
            }
        }
    }
};

template <LayerBuild kBuild>
__global__ void __launch_bounds__(kBlockThreads, 1) muse_draft(const __grid_constant__ DraftParams params) {
    extern __shared__ __align__(128) char bytes[];
    BlockEntry<Draft, kBuild>::run(params, *reinterpret_cast<SharedMemory*>(bytes));
}

template <LayerBuild kBuild>
DraftKernel draft_kernel() {
    return muse_draft<kBuild>;
}

}  // namespace musetrace::megakernel::draft
