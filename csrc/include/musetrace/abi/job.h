// What a job is, and how a list of jobs becomes slots. A job table is an X-macro in a header of its own
// (muse_layer_jobs.h); everything else, C++ and Python alike, is derived from it here.
#pragma once

#include <cstdint>

#include "musetrace/abi/stamp.h"

namespace musetrace::abi {

enum class JobKind : std::uint8_t { kLoad, kCompute, kWait, kSend, kRecv, kSync, kPrefetch };

inline constexpr const char* kJobKindNames[] = {"load", "compute", "wait", "send", "recv", "sync", "prefetch"};

inline constexpr std::uint16_t kNoJob = 0xFFFF;
inline constexpr std::uint32_t kMaxWarps = 32;

// Warps [first_warp, last_warp] of a block do the role's jobs; those in stamping_warps (a bit each) stamp them.
struct Role {
    const char* name;
    std::uint8_t first_warp;
    std::uint8_t last_warp;
    std::uint32_t stamping_warps;
};

struct Job {
    const char* name;
    const char* op;
    JobKind kind;
    std::uint8_t role;
    std::uint16_t awaits;  // for a wait: the job whose end it waits for; kNoJob otherwise
};

// A job table from its two lists, ROLES(ROLE) of ROLE(name, first warp, last warp, stamping warps) and JOBS(JOB) of
// JOB(name, op, kind without its k, role, awaited job or none). Its ids are Table::name for roles and jobs.
#define MUSETRACE_JOB_TABLE(Table, table_name, warps_per_block, ROLES, JOBS)                         \
    struct Table {                                                                                   \
        static constexpr const char* kName = table_name;                                             \
        static constexpr std::uint32_t kWarpsPerBlock = warps_per_block;                             \
        enum RoleId : std::uint8_t { ROLES(MUSETRACE_ID) kNumRoles };                                \
        enum JobId : std::uint16_t { JOBS(MUSETRACE_ID) kNumJobs, none = ::musetrace::abi::kNoJob }; \
        static constexpr ::musetrace::abi::Role kRoles[] = {ROLES(MUSETRACE_ROLE)};                  \
        static constexpr ::musetrace::abi::Job kJobs[] = {JOBS(MUSETRACE_JOB)};                      \
    };                                                                                               \
    static_assert(::musetrace::abi::table_is_sound<Table>())
#define MUSETRACE_ID(name, ...) name,
#define MUSETRACE_ROLE(name, first, last, stamping) ::musetrace::abi::Role{#name, first, last, stamping},
#define MUSETRACE_JOB(name, op, kind, role, awaits) \
    ::musetrace::abi::Job{#name, #op, ::musetrace::abi::JobKind::k##kind, role, awaits},

// Slots of a table: each stamping warp has a run of them, rounded up to whole registers of 32 lanes, so that the
// register build flushes with full coalesced stores. Within a run: jobs of the warp in table order, begin then end.
template <std::uint32_t kJobs, std::uint32_t kWarps>
struct SlotMap {
    std::uint16_t first_slot[kWarps] = {};
    std::uint16_t num_slots[kWarps] = {};
    std::uint16_t slot_of[kJobs][kWarps] = {};  // begin slot of (job, warp); kNoJob where the warp does not stamp it
    std::uint32_t total = 0;
};

template <std::uint32_t kJobs, std::uint32_t kWarps, class Table>
constexpr SlotMap<kJobs, kWarps> make_slot_map() {
    SlotMap<kJobs, kWarps> map;
    std::uint32_t next = 0;
    for (std::uint32_t warp = 0; warp < kWarps; ++warp) {
        map.first_slot[warp] = static_cast<std::uint16_t>(next);
        std::uint32_t used = 0;
        for (std::uint32_t job = 0; job < kJobs; ++job) {
            const bool stamps = Table::kRoles[Table::kJobs[job].role].stamping_warps >> warp & 1u;
            map.slot_of[job][warp] = stamps ? static_cast<std::uint16_t>(next + used) : kNoJob;
            used += stamps ? 2 : 0;
        }
        const std::uint32_t rounded = (used + kLanesPerWarp - 1) / kLanesPerWarp * kLanesPerWarp;
        map.num_slots[warp] = static_cast<std::uint16_t>(rounded);
        next += rounded;
    }
    map.total = next;
    return map;
}

template <class Table>
inline constexpr auto kSlotMap = make_slot_map<Table::kNumJobs, Table::kWarpsPerBlock, Table>();

// Begin slot of a job within its warp's run; the same for every warp that stamps it, since these share a role.
template <class Table>
constexpr std::uint32_t local_slot(std::uint32_t job) {
    const auto& map = kSlotMap<Table>;
    for (std::uint32_t warp = 0; warp < Table::kWarpsPerBlock; ++warp) {
        if (map.slot_of[job][warp] != kNoJob) return map.slot_of[job][warp] - map.first_slot[warp];
    }
    return 0;
}

// The largest run of a warp, in registers of 32 slots.
template <class Table>
constexpr std::uint32_t max_registers() {
    std::uint32_t most = 0;
    for (const std::uint16_t slots : kSlotMap<Table>.num_slots) most = slots > most ? slots : most;
    return most / kLanesPerWarp;
}

// Every wait names the job it waits for, nothing else does, and stampers belong to their role.
template <class Table>
constexpr bool table_is_sound() {
    for (const Job& job : Table::kJobs) {
        if ((job.kind == JobKind::kWait) != (job.awaits != kNoJob)) return false;
    }
    // A warp belongs to one role, so that a job has one place in the run of every warp that stamps it.
    std::uint32_t taken = 0;
    for (const Role& role : Table::kRoles) {
        if (taken & role.stamping_warps) return false;
        taken |= role.stamping_warps;
        if (role.first_warp > role.last_warp || role.last_warp >= Table::kWarpsPerBlock) return false;
        for (std::uint32_t warp = 0; warp < kMaxWarps; ++warp) {
            const bool inside = warp >= role.first_warp && warp <= role.last_warp;
            if ((role.stamping_warps >> warp & 1u) && !inside) return false;
        }
    }
    return true;
}

}  // namespace musetrace::abi
