// What a warp does with its stamps: the begin and the end of its jobs, by their ids.
#pragma once

#include "musetrace/stamp/warp_slots.cuh"

// With MUSETRACE_NO_STAMPS defined there are no stamps at all: what kOff is compared with, instruction by instruction.
#if defined(MUSETRACE_NO_STAMPS)
#define MUSETRACE_BEGIN(stamps, ...)
#define MUSETRACE_END(stamps, ...)
#define MUSETRACE_NEXT(stamps, ...)
#define MUSETRACE_INSTANT(stamps, ...)
#define MUSETRACE_PAYLOAD(stamps, ...)
#define MUSETRACE_FLUSH(stamps)
#else
// MUSETRACE_BEGIN(stamps, job) or (stamps, job, iteration); MUSETRACE_PAYLOAD(stamps, job, word) or (..., iteration).
// MUSETRACE_NEXT(stamps, ended, begun) or (..., iteration) is an end and a begin at one read of the clock.
#define MUSETRACE_BEGIN(stamps, job, ...) (stamps).template begin<job>(__VA_ARGS__)
#define MUSETRACE_END(stamps, job, ...) (stamps).template end<job>(__VA_ARGS__)
#define MUSETRACE_NEXT(stamps, ended, ...) MUSETRACE_NEXT_OF(stamps, ended, __VA_ARGS__, 0, 0)
#define MUSETRACE_NEXT_OF(stamps, ended, begun, iteration, ...) (stamps).template next<ended, begun>(iteration)
#define MUSETRACE_INSTANT(stamps, job, ...) (stamps).template instant<job>(__VA_ARGS__)
#define MUSETRACE_PAYLOAD(stamps, job, ...) (stamps).template payload<job>(__VA_ARGS__)
#define MUSETRACE_FLUSH(stamps) (stamps).flush()
#endif

namespace musetrace {

#if defined(MUSETRACE_NO_STAMPS)

template <class Table, StampMode kMode, std::uint32_t kRegisters = 0, std::uint32_t kRole = kAnyRole,
          class Where = StampRegion>
class WarpStamps {
  public:
    template <class... Ignored>
    MUSETRACE_FN WarpStamps(Ignored&&...) {}
    template <class... Ignored>
    MUSETRACE_FN void stamp(Ignored&&...) {}
    template <class... Ignored>
    MUSETRACE_FN void stamp_both(Ignored&&...) {}
    MUSETRACE_FN void flush() {}
    MUSETRACE_FN void flush_page(std::uint32_t) {}
};

#else

namespace detail {

// The places of a job: `job` is a constant in all that is not at_run_time().
template <class Table, std::uint32_t kJob>
struct JobPlace {
    static_assert(kJob < Table::kNumJobs, "there is no such job in the table");
    static constexpr abi::Job kJobOfTable = Table::kJobs[kJob];
    static constexpr std::uint32_t kSlot = abi::local_slot<Table>(kJob);
    static constexpr std::uint32_t kIterations = kJobOfTable.iterations;
    MUSETRACE_FN static constexpr std::uint32_t slot(std::uint32_t iteration) {
        return kSlot + iteration * kJobOfTable.slots();
    }
};

// A job whose id is known at run time only. `iterations` is 0 for one that is not of the role.
struct RuntimePlace {
    std::uint32_t slot;
    std::uint32_t iterations;
    std::uint32_t stride;
};
template <class Table, std::uint32_t kRole, std::uint32_t kJob = 0>
MUSETRACE_FN RuntimePlace place_of(std::uint32_t job) {
    if constexpr (kJob < Table::kNumJobs) {
        constexpr abi::Job kThis = Table::kJobs[kJob];
        if (job != kJob) return place_of<Table, kRole, kJob + 1>(job);
        return {abi::local_slot<Table>(kJob), kThis.role == kRole ? kThis.iterations : 0u, kThis.slots()};
    } else {
        return {0, 0, 0};
    }
}

}  // namespace detail

// The stamps of one warp in one launch. `iteration` counts from 0; one that the table has no slot for is counted in the
// block's header as overflow, and nothing is written.
//
// Table: a MUSETRACE_JOB_TABLE. kRole: the role whose jobs it stamps, checked by the compiler; a warp that is not one
// of the role's stamping warps stamps nothing. With kAnyRole it is the caller who knows that the warp has the job.
template <class Table, StampMode kMode, std::uint32_t kRegisters = abi::max_registers<Table>(),
          std::uint32_t kRole = kAnyRole, class Where = StampRegion>
class WarpStamps : private WarpSlots<Table, kMode, kRegisters, kRole, Where> {
    using Slots = WarpSlots<Table, kMode, kRegisters, kRole, Where>;

  public:
    using Slots::flush;
    using Slots::flush_page;
    MUSETRACE_FN WarpStamps(const Where& where, std::uint32_t block, std::uint32_t warp) : Slots(where, block, warp) {}

    template <std::uint32_t kJob>
    MUSETRACE_FN void begin(std::uint32_t iteration = 0) {
        put<kJob>(iteration, 0);
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void end(std::uint32_t iteration = 0) {
        static_assert(!Table::kJobs[kJob].is_instant(), "an instant has no end");
        put<kJob>(iteration, 1);
    }
    // The end of one job and the begin of the one behind it, in the same iteration, at one read of the clock.
    template <std::uint32_t kEnded, std::uint32_t kBegun>
    MUSETRACE_FN void next(std::uint32_t iteration = 0) {
        static_assert(!Table::kJobs[kEnded].is_instant(), "an instant has no end");
        using Ended = detail::JobPlace<Table, kEnded>;
        using Begun = detail::JobPlace<Table, kBegun>;
        check<kEnded>();
        check<kBegun>();
        if (iteration < Ended::kIterations && iteration < Begun::kIterations) {
            put_at<Ended::kIterations>(Ended::slot(iteration) + 1, Begun::slot(iteration));
        } else {
            put<kEnded>(iteration, 1);
            put<kBegun>(iteration, 0);
        }
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void instant(std::uint32_t iteration = 0) {
        static_assert(Table::kJobs[kJob].is_instant(), "the table says that this job has an end: add kInstant");
        put<kJob>(iteration, 0);
    }
    // Where the iteration is a constant too, one that there is no slot for does not compile.
    template <std::uint32_t kJob, std::uint32_t kIteration>
    MUSETRACE_FN void begin_at() {
        static_assert(kIteration < Table::kJobs[kJob].iterations, "the table gives this job fewer iterations");
        check<kJob>();
        Slots::put(detail::JobPlace<Table, kJob>::slot(kIteration));
    }
    template <std::uint32_t kJob, std::uint32_t kIteration>
    MUSETRACE_FN void end_at() {
        static_assert(kIteration < Table::kJobs[kJob].iterations, "the table gives this job fewer iterations");
        static_assert(!Table::kJobs[kJob].is_instant(), "an instant has no end");
        check<kJob>();
        Slots::put(detail::JobPlace<Table, kJob>::slot(kIteration) + 1);
    }
    // A number of the instance's own: bytes, a tile, an expert. Any time between begin and flush().
    template <std::uint32_t kJob>
    MUSETRACE_FN void payload(std::uint32_t word, std::uint32_t iteration = 0) {
        static_assert(Table::kJobs[kJob].has_payload(), "the table gives this job no payload: add kPayload");
        using Place = detail::JobPlace<Table, kJob>;
        check<kJob>();
        if (iteration >= Place::kIterations) return;  // its begin was counted
        Slots::put_word(Place::slot(iteration) + 2, word);
    }

    // As above, where the job is known at run time only; a job that is not of the role is overflow too.
    MUSETRACE_FN void begin(std::uint32_t job, std::uint32_t iteration) { put_at_run_time(job, iteration, 0); }
    MUSETRACE_FN void end(std::uint32_t job, std::uint32_t iteration) { put_at_run_time(job, iteration, 1); }

    // Not checked, for code that several jobs share: `slot` is abi::local_slot<Table>(job), and one more for its end.
    MUSETRACE_FN void stamp(std::uint32_t slot) { Slots::put_both_of_any(slot, slot); }
    MUSETRACE_FN void stamp_both(std::uint32_t slot, std::uint32_t other) { Slots::put_both_of_any(slot, other); }

  private:
    template <std::uint32_t kJob>
    MUSETRACE_FN static constexpr void check() {
        using Place = detail::JobPlace<Table, kJob>;
        constexpr abi::Role kOwner = Table::kRoles[Place::kJobOfTable.role];
        static_assert(kOwner.owner == abi::kWarp, "the block owns this job: stamp it with KernelStamps");
        static_assert(kRole == kAnyRole || kRole == Place::kJobOfTable.role, "the job is one of another role");
        static_assert(kMode != StampMode::kRegister || kRegisters == kByPage || kRegisters == kAtOnce ||
                          Place::slot(Place::kIterations) <= kRegisters * abi::kLanesPerWarp,
                      "this warp has no slots for the job");
    }
    template <std::uint32_t kJob>
    MUSETRACE_FN void put(std::uint32_t iteration, std::uint32_t edge) {
        using Place = detail::JobPlace<Table, kJob>;
        check<kJob>();
        if (iteration < Place::kIterations) {
            put_at<Place::kIterations>(Place::slot(iteration) + edge, Place::slot(iteration) + edge);
        } else if (edge == 0) {
            Slots::overflow();
        }
    }
    // An iteration is most likely one of a rolled loop: its slot is no constant.
    template <std::uint32_t kIterations>
    MUSETRACE_FN void put_at(std::uint32_t slot, std::uint32_t other) {
        if constexpr (kIterations > 1) {
            Slots::put_both_of_any(slot, other);
        } else {
            Slots::put_both(slot, other);
        }
    }
    MUSETRACE_FN void put_at_run_time(std::uint32_t job, std::uint32_t iteration, std::uint32_t edge) {
        static_assert(kRole != kAnyRole, "only the stamps of a role can check a job that is not a constant");
        const detail::RuntimePlace place = detail::place_of<Table, kRole>(job);
        if (iteration < place.iterations) {
            const std::uint32_t slot = place.slot + iteration * place.stride + edge;
            Slots::put_both_of_any(slot, slot);
        } else if (edge == 0) {
            Slots::overflow();
        }
    }
};

#endif

}  // namespace musetrace
