// A decode step's state as Python has it.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "muse/shape.h"

namespace musetrace::bindings {

// 16 numbers below `limit` into `to`, where they are named.
inline void take_rows(const pybind11::dict& step, const char* name, std::uint32_t* to, std::uint32_t limit) {
    if (!step.contains(name)) return;
    const auto values = step[name].cast<std::vector<std::uint32_t>>();
    if (values.size() != kTokens) throw std::invalid_argument(std::string(name) + " must have 16 entries");
    for (std::uint32_t row = 0; row < kTokens; ++row) {
        if (values[row] >= limit) throw std::invalid_argument(std::string(name) + " is out of range");
        to[row] = values[row];
    }
}

// The state of a device with what the dict names of it; `vocab` and `max_top_k` are the device's. Throws
// std::invalid_argument when no step can start so.
template <class State>
State changed_step(State state, const pybind11::dict& step, std::uint32_t vocab, std::uint32_t max_top_k) {
    take_rows(step, "tokens", state.tokens, vocab);
    take_rows(step, "parents", state.parents, kTokens);
    take_rows(step, "path", state.path, kTokens);
    const auto number = [&](const char* name, auto* to) {
        if (step.contains(name)) *to = step[name].cast<std::remove_pointer_t<decltype(to)>>();
    };
    number("position", &state.position);
    number("kept", &state.kept);
    number("top_k", &state.top_k);
    number("temperature", &state.temperature);
    number("seed", &state.seed);
    for (std::uint32_t row = 1; row < kTokens; ++row) {
        if (state.parents[row] >= row) throw std::invalid_argument("a parent must stand before its child");
    }
    if (state.kept > kTokens || state.kept > state.position || state.top_k < 1 || state.top_k > max_top_k) {
        throw std::invalid_argument("kept or top_k is out of range");
    }
    return state;
}

template <class State>
pybind11::dict step_dict(const State& state) {
    const auto list = [](const std::uint32_t* values, std::uint32_t count) {
        return std::vector<std::uint32_t>(values, values + count);
    };
    pybind11::dict step;
    step["position"] = state.position, step["kept"] = state.kept, step["top_k"] = state.top_k;
    step["temperature"] = state.temperature, step["seed"] = state.seed;
    step["path"] = list(state.path, state.kept), step["chosen"] = list(state.chosen, state.kept);
    step["tokens"] = list(state.tokens, kTokens), step["parents"] = list(state.parents, kTokens);
    return step;
}

}  // namespace musetrace::bindings
