// Jobs and roles, and how a list of them becomes slots: worked out by the compiler for a table in C++, and by the same
// lines at run time for a table that Python declares.
#pragma once

#include "musetrace/abi/integers.h"
#include "musetrace/abi/stamp.h"

namespace musetrace::abi {

enum class JobKind : std::uint8_t { kLoad, kCompute, kWait, kSend, kRecv, kSync, kPrefetch };

inline constexpr const char* kJobKindNames[] = {"load", "compute", "wait", "send", "recv", "sync", "prefetch"};

inline constexpr std::uint16_t kNoJob = 0xFFFF;
inline constexpr std::uint32_t kMaxWarps = 32;
inline constexpr std::uint32_t kMaxSlots = 65534;  // the begin slot of a pair is a u16 that is not kNoJob

enum Owner : std::uint8_t { kWarp = 0, kBlock = 1 };

// What a job has beside a begin and an end, and whose producers a wait waits for: one scope at most. Without one the
// reader works it out from the times.
enum JobExtra : std::uint8_t {
    kSpan = 0,
    kInstant = 1,     // a moment: no end
    kPayload = 2,     // 32 bits of its own with each instance
    kFromBlock = 4,   // waits for the awaited job of its own block
    kFromRank = 8,    // of all blocks of its rank
    kFromRanks = 16,  // of all blocks of all ranks
};
inline constexpr std::uint8_t kScopeBits = kFromBlock | kFromRank | kFromRanks;
inline constexpr const char* kScopeNames[] = {"block", "rank", "ranks"};  // in the order of their bits
MUSETRACE_BOTH constexpr JobExtra operator|(JobExtra one, JobExtra other) {
    return static_cast<JobExtra>(static_cast<std::uint8_t>(one) | static_cast<std::uint8_t>(other));
}

// Warps [first_warp, last_warp] of a block do the role's jobs; those in stamping_warps (a bit each) stamp them. Jobs of
// a role that the block owns have one place for the whole block.
struct Role {
    const char* name;
    std::uint8_t first_warp;
    std::uint8_t last_warp;
    std::uint32_t stamping_warps;
    Owner owner = kWarp;
};

struct Job {
    const char* name;
    const char* op;
    JobKind kind;
    std::uint8_t role;
    std::uint16_t awaits;  // for a wait: the job whose end it waits for; kNoJob otherwise
    std::uint16_t iterations = 1;
    JobExtra extra = kSpan;

    MUSETRACE_BOTH constexpr bool is_instant() const { return extra & kInstant; }
    MUSETRACE_BOTH constexpr bool has_payload() const { return extra & kPayload; }
    MUSETRACE_BOTH constexpr JobExtra scope() const { return static_cast<JobExtra>(extra & kScopeBits); }
    // Of one instance: begin and end, and behind them a payload and the mark that it was written.
    MUSETRACE_BOTH constexpr std::uint32_t slots() const { return has_payload() ? 4u : 2u; }
};

// A table without its type.
struct TableView {
    const char* name;
    std::uint32_t warps_per_block;
    const Role* roles;
    std::uint32_t num_roles;
    const Job* jobs;
    std::uint32_t num_jobs;

    // `warp` may be warps_per_block: the block itself.
    MUSETRACE_BOTH constexpr bool stamps(std::uint32_t job, std::uint32_t warp) const {
        const Role& role = roles[jobs[job].role];
        if (role.owner == kBlock) return warp == warps_per_block;
        return warp < warps_per_block && (role.stamping_warps >> warp & 1u);
    }
};

// Each stamping warp has a run of slots, rounded up to whole registers of 32 lanes, so that the register build flushes
// with full coalesced stores; behind the warps' runs comes that of the block. Within a run: jobs in table order, the
// iterations of a job one after the other.
template <std::uint32_t kJobs, std::uint32_t kWarps>
struct SlotMap {
    std::uint16_t first_slot[kWarps + 1] = {};
    std::uint16_t num_slots[kWarps + 1] = {};
    std::uint16_t slot_of[kJobs][kWarps + 1] =
        {};  // begin slot of (job, warp); kNoJob where the warp does not stamp it
    std::uint32_t total = 0;
};

// Map is SlotMap, or has members that are indexed like its own.
template <class Map>
MUSETRACE_BOTH constexpr void fill_slot_map(const TableView& table, Map& map) {
    std::uint32_t next = 0;
    for (std::uint32_t warp = 0; warp <= table.warps_per_block; ++warp) {
        map.first_slot[warp] = static_cast<std::uint16_t>(next);
        std::uint32_t used = 0;
        for (std::uint32_t job = 0; job < table.num_jobs; ++job) {
            const bool stamps = table.stamps(job, warp);
            map.slot_of[job][warp] = stamps ? static_cast<std::uint16_t>(next + used) : kNoJob;
            used += stamps ? table.jobs[job].slots() * table.jobs[job].iterations : 0;
        }
        const std::uint32_t rounded = (used + kLanesPerWarp - 1) / kLanesPerWarp * kLanesPerWarp;
        map.num_slots[warp] = static_cast<std::uint16_t>(rounded);
        next += rounded;
    }
    map.total = next;
}

// As fill_slot_map counts them, without a limit.
MUSETRACE_BOTH constexpr std::uint64_t count_slots(const TableView& table) {
    std::uint64_t total = 0;
    for (std::uint32_t warp = 0; warp <= table.warps_per_block; ++warp) {
        std::uint64_t used = 0;
        for (std::uint32_t job = 0; job < table.num_jobs; ++job) {
            const std::uint64_t slots = std::uint64_t{table.jobs[job].slots()} * table.jobs[job].iterations;
            used += table.stamps(job, warp) ? slots : 0;
        }
        total += (used + kLanesPerWarp - 1) / kLanesPerWarp * kLanesPerWarp;
    }
    return total;
}

// A warp stamps in one role at most, so that a job has one place in the run of every warp that stamps it.
MUSETRACE_BOTH constexpr bool roles_are_sound(const TableView& table) {
    if (table.warps_per_block == 0 || table.warps_per_block > kMaxWarps) return false;
    std::uint32_t taken = 0;
    for (std::uint32_t at = 0; at < table.num_roles; ++at) {
        const Role& role = table.roles[at];
        if (role.first_warp > role.last_warp || role.last_warp >= table.warps_per_block) return false;
        if (role.owner == kBlock && role.stamping_warps != 0) return false;
        if (taken & role.stamping_warps) return false;
        taken |= role.stamping_warps;
        for (std::uint32_t warp = 0; warp < kMaxWarps; ++warp) {
            const bool inside = warp >= role.first_warp && warp <= role.last_warp;
            if ((role.stamping_warps >> warp & 1u) && !inside) return false;
        }
    }
    return true;
}

// Every wait names the job it waits for, and one scope at most; nothing else does.
MUSETRACE_BOTH constexpr bool jobs_are_sound(const TableView& table) {
    for (std::uint32_t at = 0; at < table.num_jobs; ++at) {
        const Job& job = table.jobs[at];
        if (job.role >= table.num_roles || job.iterations == 0) return false;
        if ((job.kind == JobKind::kWait) != (job.awaits != kNoJob)) return false;
        if (job.awaits != kNoJob && job.awaits >= table.num_jobs) return false;
        if (job.scope() != 0 && (job.kind != JobKind::kWait || (job.scope() & (job.scope() - 1)) != 0)) return false;
    }
    return true;
}

}  // namespace musetrace::abi
