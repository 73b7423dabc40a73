// The stamps of a kernel that gets one pointer from the recorder.
#pragma once

#include "musetrace/stamp/warp_stamps.cuh"

// The mode of KernelStamps: -DMUSETRACE_STAMPS=0 is off, 1 store, 2 register.
#if !defined(MUSETRACE_STAMPS)
#define MUSETRACE_STAMPS 2
#endif

namespace musetrace {

inline constexpr StampMode kBuildMode = static_cast<StampMode>(MUSETRACE_STAMPS);
static_assert(MUSETRACE_STAMPS >= 0 && MUSETRACE_STAMPS <= 2, "MUSETRACE_STAMPS is 0 (off), 1 (store) or 2 (register)");

namespace detail {

template <StampMode kMode>
struct SlotOf {
    using Type = std::uint32_t;
};
template <>
struct SlotOf<StampMode::kStore> {
    using Type = std::uint64_t;
};

}  // namespace detail

#if defined(MUSETRACE_NO_STAMPS)

template <class Table, StampMode kMode = kBuildMode>
class KernelStamps {
  public:
    template <class... Ignored>
    MUSETRACE_FN explicit KernelStamps(Ignored&&...) {}
    template <std::uint32_t kRole>
    MUSETRACE_FN WarpStamps<Table, kMode> role() const {
        return {};
    }
};

#else

// Made by every thread, at the kernel's begin. `region` is the pointer that the recorder gave for this launch; null
// when the launch is not recorded. A region that was made for another table, mode or grid is left alone, but for a note
// for the recorder, which says so.
//
// The block's own jobs (kBlock) are stamped here, by whichever thread says so; those of a role by what role() gives.
template <class Table, StampMode kMode = kBuildMode>
class KernelStamps {
  public:
#if defined(__CUDACC__)
    MUSETRACE_FN explicit KernelStamps(void* region) : KernelStamps(region, block_of_grid(), thread_of_block()) {}
#endif
    // `thread` counts those of the block, 32 to a warp.
    MUSETRACE_FN KernelStamps(void* region, std::uint32_t block, std::uint32_t thread)
        : block_(block), warp_(thread / abi::kLanesPerWarp) {
        if constexpr (kMode != StampMode::kOff) open(static_cast<char*>(region), thread == 0);
    }

    // The stamps of this thread's warp in a role; flush() them behind the warp's last one. This object outlives them.
    template <std::uint32_t kRole>
    MUSETRACE_FN WarpStamps<Table, kMode, registers_for(abi::max_registers<Table>(kRole)), kRole> role() const {
        static_assert(kRole < Table::kNumRoles, "there is no such role in the table");
        static_assert(Table::kRoles[kRole].owner == abi::kWarp, "the block owns this role: stamp with KernelStamps");
        return {region_, block_, warp_};
    }

    template <std::uint32_t kJob>
    MUSETRACE_FN void begin(std::uint32_t iteration = 0) const {
        put<kJob>(iteration, 0);
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void end(std::uint32_t iteration = 0) const {
        static_assert(!Table::kJobs[kJob].is_instant(), "an instant has no end");
        put<kJob>(iteration, 1);
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void instant(std::uint32_t iteration = 0) const {
        static_assert(Table::kJobs[kJob].is_instant(), "the table says that this job has an end: add kInstant");
        put<kJob>(iteration, 0);
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void payload(std::uint32_t word, std::uint32_t iteration = 0) const {
        static_assert(Table::kJobs[kJob].has_payload(), "the table gives this job no payload: add kPayload");
        using Place = detail::JobPlace<Table, kJob>;
        check<kJob>();
        if (region_.base == nullptr || iteration >= Place::kIterations) return;
        slots()[Place::slot(iteration) + 2] = word;
        slots()[Place::slot(iteration) + 3] = 1;
    }

  private:
    using Slot = typename detail::SlotOf<kMode>::Type;

    MUSETRACE_FN void open(char* region, bool speaks_for_block) {
        if (region == nullptr) return;
        constexpr std::uint32_t kSlots = abi::kSlotMap<Table>.total, kBytes = abi::slot_bytes(kMode);
        auto* header = reinterpret_cast<abi::RegionHeader*>(region);
        const detail::HostWords told = detail::load_host_words(header);
        const bool fits = told.slots == kSlots && told.slot_bytes == kBytes;
        if (fits && block_ < told.blocks) region_ = {region, {told.blocks, kSlots, kBytes}};
        if (!speaks_for_block) return;
        if (block_ == 0) detail::add(&header->launches, 1);
        if (!fits) {
            header->mismatch = abi::region_shape(kSlots, kBytes);
        } else if (block_ >= told.blocks) {
            detail::add(&header->dropped_blocks, 1);
        } else {
            stamp_block(region_.header(block_), told.epoch, detail::sm_id());
        }
    }
    MUSETRACE_FN Slot* slots() const {
        constexpr std::uint32_t kFirst = abi::kSlotMap<Table>.first_slot[Table::kWarpsPerBlock];
        return region_.template slots<Slot>(block_) + kFirst;
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN static constexpr void check() {
        using Place = detail::JobPlace<Table, kJob>;
        static_assert(Table::kRoles[Place::kJobOfTable.role].owner == abi::kBlock,
                      "the block does not own this job: stamp it with role()");
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void put(std::uint32_t iteration, std::uint32_t edge) const {
        using Place = detail::JobPlace<Table, kJob>;
        check<kJob>();
        if (region_.base == nullptr) return;
        if (iteration < Place::kIterations) {
            slots()[Place::slot(iteration) + edge] = detail::clock_for<Slot>();
        } else if (edge == 0) {
            region_.count_overflow(block_);
        }
    }
#if defined(__CUDACC__)
    MUSETRACE_FN static std::uint32_t block_of_grid() {
#if defined(__CUDA_ARCH__)
        return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
#else
        return 0;
#endif
    }
    MUSETRACE_FN static std::uint32_t thread_of_block() {
#if defined(__CUDA_ARCH__)
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
#else
        return 0;
#endif
    }
#endif

    StampRegion region_{};
    std::uint32_t block_;
    std::uint32_t warp_;
};

#endif

}  // namespace musetrace
