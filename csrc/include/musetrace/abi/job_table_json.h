// A job table as JSON, for the recorder. Host only.
//
//   MUSETRACE_EXPORT_JOB_TABLE(GemmJobs);     in one source file that the host compiles
//
// gives a shared library the C function `musetrace_job_table_GemmJobs`, which Python reads:
//
//   table = musetrace.JobTable.from_library("./libgemm.so", "GemmJobs")
#pragma once

#if !defined(__CUDACC_RTC__)

#include <memory>
#include <string>
#include <vector>

#include "musetrace/abi/job.h"

namespace musetrace::abi {

namespace json {

inline std::string quoted(const char* text) {
    std::string out = "\"";
    for (; *text != 0; ++text) {
        const unsigned char letter = static_cast<unsigned char>(*text);
        if (letter == '"' || letter == '\\') out += '\\';
        if (letter < 0x20) {
            const char* digits = "0123456789abcdef";
            out += std::string("\\u00") + digits[letter >> 4] + digits[letter & 15];
        } else {
            out += *text;
        }
    }
    return out + "\"";
}

template <class Values, class Show>
std::string list(const Values& values, Show show) {
    std::string out;
    for (const auto& value : values) out += (out.empty() ? "" : ", ") + show(value);
    return "[" + out + "]";
}

inline std::string boolean(bool value) { return value ? "true" : "false"; }

inline std::string scope(JobExtra scope) {
    if (scope == 0) return "null";
    return quoted(kScopeNames[scope == kFromBlock ? 0 : scope == kFromRank ? 1 : 2]);
}

inline std::string job(const TableView& table, const Job& job) {
    const Role& role = table.roles[job.role];
    std::vector<int> stampers;
    for (int warp = 0; warp < static_cast<int>(table.warps_per_block); ++warp) {
        if (role.owner == kWarp && (role.stamping_warps >> warp & 1u)) stampers.push_back(warp);
    }
    const auto number = [](int value) { return std::to_string(value); };
    return "{\"name\": " + quoted(job.name) + ", \"op\": " + quoted(job.op) +
           ", \"kind\": " + quoted(kJobKindNames[static_cast<int>(job.kind)]) + ", \"role\": " + quoted(role.name) +
           ", \"warps\": [" + std::to_string(role.first_warp) + ", " + std::to_string(role.last_warp) +
           "], \"stamped_by\": " + list(stampers, number) +
           ", \"awaits\": " + (job.awaits == kNoJob ? "null" : std::to_string(job.awaits)) +
           ", \"scope\": " + scope(job.scope()) + ", \"iterations\": " + std::to_string(job.iterations) +
           ", \"payload\": " + boolean(job.has_payload()) + ", \"instant\": " + boolean(job.is_instant()) +
           ", \"owner\": " + (role.owner == kBlock ? "\"block\"" : "\"warp\"") + "}";
}

}  // namespace json

// What stands in each pair of slots; -1 where nothing does.
struct SlotPair {
    int job = -1;
    int warp = -1;  // also where the block owns the job
    int iteration = 0;
    bool payload = false;
};

inline std::vector<SlotPair> slot_pairs(const TableView& table) {
    // Plain arrays, since nvcc compiles fill_slot_map for the device too.
    const auto slot_of = std::make_unique<std::uint16_t[][kMaxWarps + 1]>(table.num_jobs);
    struct {
        std::uint16_t first_slot[kMaxWarps + 1], num_slots[kMaxWarps + 1];
        std::uint16_t (*slot_of)[kMaxWarps + 1];
        std::uint32_t total;
    } map{{}, {}, slot_of.get(), 0};
    fill_slot_map(table, map);
    std::vector<SlotPair> pairs(map.total / 2);
    for (std::uint32_t job = 0; job < table.num_jobs; ++job) {
        for (std::uint32_t warp = 0; warp <= table.warps_per_block; ++warp) {
            if (map.slot_of[job][warp] == kNoJob) continue;
            const std::uint32_t in_instance = table.jobs[job].slots() / 2;
            for (std::uint32_t i = 0; i < table.jobs[job].iterations * in_instance; ++i) {
                pairs[map.slot_of[job][warp] / 2 + i] = {static_cast<int>(job),
                                                         warp == table.warps_per_block ? -1 : static_cast<int>(warp),
                                                         static_cast<int>(i / in_instance), i % in_instance != 0};
            }
        }
    }
    return pairs;
}

inline std::string job_table_json(const TableView& table) {
    const std::vector<Job> jobs(table.jobs, table.jobs + table.num_jobs);
    const std::vector<SlotPair> pairs = slot_pairs(table);
    const auto number = [](int value) { return std::to_string(value); };
    const auto of_pairs = [&](auto member, auto show) {
        return json::list(pairs, [&](const SlotPair& pair) { return show(pair.*member); });
    };
    return "{\"name\": " + json::quoted(table.name) +
           ", \"warps_per_block\": " + std::to_string(table.warps_per_block) +
           ", \"slots\": " + std::to_string(2 * pairs.size()) +
           ", \"jobs\": " + json::list(jobs, [&](const Job& job) { return json::job(table, job); }) +
           ", \"job_of_pair\": " + of_pairs(&SlotPair::job, number) +
           ", \"warp_of_pair\": " + of_pairs(&SlotPair::warp, number) +
           ", \"iteration_of_pair\": " + of_pairs(&SlotPair::iteration, number) +
           ", \"payload_of_pair\": " + of_pairs(&SlotPair::payload, json::boolean) + "}";
}

// A table's lists, in the library that asks: of the table's own, which its type holds, the loader takes those of the
// first library in the process that has a table of this name, as when a library is built and loaded again.
template <class Table>
struct OwnLists {
    Role roles[Table::kNumRoles];
    Job jobs[Table::kNumJobs];
};
template <class Table>
constexpr OwnLists<Table> own_lists() {
    OwnLists<Table> own{};
    for (std::uint32_t i = 0; i < Table::kNumRoles; ++i) own.roles[i] = Table::kRoles[i];
    for (std::uint32_t i = 0; i < Table::kNumJobs; ++i) own.jobs[i] = Table::kJobs[i];
    return own;
}

template <class Table>
std::string job_table_json() {
    constexpr OwnLists<Table> own = own_lists<Table>();
    return job_table_json(
        {Table::kName, Table::kWarpsPerBlock, own.roles, Table::kNumRoles, own.jobs, Table::kNumJobs});
}

}  // namespace musetrace::abi

#define MUSETRACE_EXPORT_JOB_TABLE(Table)                                                         \
    extern "C" __attribute__((visibility("default"))) const char* musetrace_job_table_##Table() { \
        static const std::string json = ::musetrace::abi::job_table_json<Table>();                \
        return json.c_str();                                                                      \
    }                                                                                             \
    static_assert(true)

#endif
