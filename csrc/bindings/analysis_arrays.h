// NumPy arrays as the analysis kernels take them: int64, one dimension, checked for length.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "analysis/instance_spans.h"

namespace musetrace::bindings {

using Ints = pybind11::array_t<std::int64_t, pybind11::array::c_style | pybind11::array::forcecast>;
using Bytes = pybind11::array_t<std::uint8_t, pybind11::array::c_style | pybind11::array::forcecast>;

inline void check_length(const pybind11::array& array, pybind11::ssize_t length, const char* name) {
    if (array.ndim() != 1 || array.shape(0) != length) {
        throw std::invalid_argument(std::string(name) + " is not a list of " + std::to_string(length));
    }
}

// Every value in [0, limit): what indexes memory.
inline void check_below(const Ints& array, std::int64_t limit, const char* name) {
    const std::int64_t* values = array.data();
    bool inside = true;
    for (pybind11::ssize_t i = 0; i < array.size(); ++i) inside &= values[i] >= 0 && values[i] < limit;
    if (!inside) throw std::invalid_argument(std::string(name) + " is not below " + std::to_string(limit));
}

// A vector that becomes an array without a copy.
template <typename Value>
pybind11::array_t<Value> to_array(std::vector<Value>&& values) {
    auto* kept = new std::vector<Value>(std::move(values));
    const pybind11::capsule owner(kept, [](void* vector) { delete static_cast<std::vector<Value>*>(vector); });
    return pybind11::array_t<Value>(pybind11::ssize_t(kept->size()), kept->data(), owner);
}

// The span columns of one (rank, step), as a tuple of begin, end, job, launch, block, warp.
struct SpanArrays {
    Ints begin, end, job, launch, block, warp, launch_begin, launch_end;

    void check(std::int64_t blocks) const {
        const pybind11::ssize_t size = begin.size();
        check_length(end, size, "end");
        check_length(job, size, "job");
        check_length(launch, size, "launch");
        check_length(block, size, "block");
        check_length(warp, size, "warp");
        check_length(launch_end, launch_begin.size(), "launch_end");
        check_below(job, 1 << 16, "job");
        check_below(launch, launch_begin.size(), "launch");
        check_below(block, blocks, "block");
    }

    analysis::SpanColumns spans() const {
        return {
            begin.data(), end.data(), job.data(), launch.data(), block.data(), warp.data(), std::size_t(begin.size())};
    }

    analysis::LaunchColumns launches() const {
        return {launch_begin.data(), launch_end.data(), std::size_t(launch_begin.size())};
    }
};

}  // namespace musetrace::bindings
