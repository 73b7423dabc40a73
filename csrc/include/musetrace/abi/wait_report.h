// What a wait that ran out of time says: who waited, where, for what. The first to time out claims the report and
// raises the abort flag; everybody else leaves on the flag, so there is one cause and no avalanche.
#pragma once

#include <cstddef>
#include <cstdint>

namespace musetrace::abi {

struct alignas(16) WaitReport {
    std::uint32_t claimed;  // 0 = nobody has timed out
    std::uint32_t abort;    // polled by every wait
    std::uint32_t site;     // job id of the wait, or of the job in which the warp waited
    std::uint32_t rank;
    std::uint32_t block;
    std::uint32_t warp;
    std::uint64_t want;
    std::uint64_t got;
    std::uint64_t waited_ns;
};
static_assert(sizeof(WaitReport) == 48 && alignof(WaitReport) == 16);

}  // namespace musetrace::abi
