// What a job is. A job table is an X-macro, of two lists (samples/your_own_kernel/gemm_jobs.h is one); everything else,
// C++ and Python alike, is derived from it.
#pragma once

#include "musetrace/abi/integers.h"
#include "musetrace/abi/slot_map.h"

namespace musetrace::abi {

// A job table from its two lists. ROLES(ROLE) is a list of
//
//   ROLE(name, first warp, last warp, stamping warps)      a bit for each warp that stamps
//   ROLE(name, first warp, last warp, 0, kBlock)           jobs of the block: whichever thread says so stamps them
//
// and JOBS(JOB) a list of
//
//   JOB(name, op, kind without its k, role, awaited job or none)
//   JOB(name, op, kind, role, awaited job, iterations)               so many spans in each launch, from [0] on
//   JOB(name, op, kind, role, awaited job, iterations, extra)        kInstant | kPayload: see JobExtra
//   JOB(name, op, Wait, role, awaited job, iterations, scope)        kFromBlock, kFromRank or kFromRanks: of whom
//
// with kBlock and the JobExtra names of musetrace::abi. Its ids are Table::name for roles and jobs.
#define MUSETRACE_JOB_TABLE(Table, table_name, warps_per_block, ROLES, JOBS)                                        \
    struct Table {                                                                                                  \
        static constexpr const char* kName = table_name;                                                            \
        static constexpr ::std::uint32_t kWarpsPerBlock = warps_per_block;                                          \
        enum RoleId : ::std::uint8_t { ROLES(MUSETRACE_ID) kNumRoles };                                             \
        enum JobId : ::std::uint16_t { JOBS(MUSETRACE_ID) kNumJobs, none = ::musetrace::abi::kNoJob };              \
        static constexpr ::musetrace::abi::Role kRoles[] = {ROLES(MUSETRACE_ROLE)};                                 \
        static constexpr ::musetrace::abi::Job kJobs[] = {JOBS(MUSETRACE_JOB)};                                     \
    };                                                                                                              \
    static_assert(                                                                                                  \
        ::musetrace::abi::roles_are_sound(::musetrace::abi::view_of<Table>()),                                      \
        "a role's warps are not warps of the block, or a warp stamps in two roles, or one outside its role");       \
    static_assert(::musetrace::abi::jobs_are_sound(::musetrace::abi::view_of<Table>()),                             \
                  "a wait names no job to wait for or two scopes, another job names one of these, or a job has no " \
                  "iterations");                                                                                    \
    static_assert(::musetrace::abi::count_slots(::musetrace::abi::view_of<Table>()) <= ::musetrace::abi::kMaxSlots, \
                  "a block would have more than 65,534 slots: fewer iterations, or fewer stamping warps")
#define MUSETRACE_ID(name, ...) name,
#define MUSETRACE_ROLE(name, first, last, ...) ::musetrace::abi::Role{#name, first, last, __VA_ARGS__},
#define MUSETRACE_JOB(name, op, kind, role, ...) \
    ::musetrace::abi::Job{#name, #op, ::musetrace::abi::JobKind::k##kind, role, __VA_ARGS__},

template <class Table>
MUSETRACE_BOTH constexpr TableView view_of() {
    return {Table::kName, Table::kWarpsPerBlock, Table::kRoles, Table::kNumRoles, Table::kJobs, Table::kNumJobs};
}

template <class Table>
MUSETRACE_BOTH constexpr SlotMap<Table::kNumJobs, Table::kWarpsPerBlock> make_slot_map() {
    SlotMap<Table::kNumJobs, Table::kWarpsPerBlock> map;
    fill_slot_map(view_of<Table>(), map);
    return map;
}

// NVRTC warns of a variable that is not the device's, although only constants are taken from it.
#if defined(__CUDACC_RTC__)
#define MUSETRACE_DEVICE_OF_RTC __device__
#else
#define MUSETRACE_DEVICE_OF_RTC
#endif
template <class Table>
MUSETRACE_DEVICE_OF_RTC inline constexpr auto kSlotMap = make_slot_map<Table>();

// Begin slot of a job's first instance within its warp's run, or within the block's; the same for every warp that
// stamps it, since these share a role.
template <class Table>
MUSETRACE_BOTH constexpr std::uint32_t local_slot(std::uint32_t job) {
    const auto& map = kSlotMap<Table>;
    for (std::uint32_t warp = 0; warp <= Table::kWarpsPerBlock; ++warp) {
        if (map.slot_of[job][warp] != kNoJob) return map.slot_of[job][warp] - map.first_slot[warp];
    }
    return 0;
}

// The largest run of a warp of the role, in registers of 32 slots; of any warp without a role.
template <class Table>
MUSETRACE_BOTH constexpr std::uint32_t max_registers(std::uint32_t role = Table::kNumRoles) {
    std::uint32_t most = 0;
    for (std::uint32_t warp = 0; warp < Table::kWarpsPerBlock; ++warp) {
        const bool counts = role == Table::kNumRoles || (Table::kRoles[role].stamping_warps >> warp & 1u);
        const std::uint32_t slots = counts ? kSlotMap<Table>.num_slots[warp] : 0u;
        most = slots > most ? slots : most;
    }
    return most / kLanesPerWarp;
}

// A bit for each lane of a role's register `i` that keeps no time, but a payload or its mark. A table with payloads is
// stamped by role: which of its registers a warp of any role has is not known when compiling.
template <class Table>
MUSETRACE_BOTH constexpr std::uint32_t payload_lanes(std::uint32_t role, std::uint32_t i) {
    std::uint32_t lanes = 0;
    for (std::uint32_t job = 0; job < Table::kNumJobs; ++job) {
        const Job& of_table = Table::kJobs[job];
        if (of_table.role != role || !of_table.has_payload()) continue;
        for (std::uint32_t at = 0; at < of_table.slots() * of_table.iterations; ++at) {
            const std::uint32_t slot = local_slot<Table>(job) + at;
            if (at % 4 >= 2 && slot / kLanesPerWarp == i) lanes |= 1u << slot % kLanesPerWarp;
        }
    }
    return lanes;
}

}  // namespace musetrace::abi
