// Splits a range into parts, one a thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace musetrace::analysis {

// More threads gain little: what these loops wait for is memory.
constexpr std::size_t kMostThreads = 8;

inline std::size_t part_count(std::size_t size, std::size_t least_of_a_part) {
    const std::size_t cores = std::max<std::size_t>(std::thread::hardware_concurrency(), 1);
    return std::max<std::size_t>(std::min({cores, kMostThreads, size / least_of_a_part}), 1);
}

// Calls work(part, first, past) for each of `parts` neighbouring ranges of [0, size), and rethrows what one threw.
template <typename Work>
void for_parts(std::size_t size, std::size_t parts, Work work) {
    std::vector<std::exception_ptr> failed(parts);
    const auto one = [&](std::size_t part) {
        try {
            work(part, size * part / parts, size * (part + 1) / parts);
        } catch (...) {
            failed[part] = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t part = 1; part < parts; ++part) {
        try {
            threads.emplace_back(one, part);
        } catch (const std::system_error&) {
            one(part);  // no thread to be had
        }
    }
    one(0);
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : failed) {
        if (error) std::rethrow_exception(error);
    }
}

}  // namespace musetrace::analysis
