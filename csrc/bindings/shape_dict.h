// A model's shape as Python hands it over.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "muse/shape.h"

namespace musetrace::bindings {

inline Shape shape_from(const pybind11::dict& values) {
    const auto u = [&](const char* key) { return values[key].cast<std::uint32_t>(); };
    const auto f = [&](const char* key) { return values[key].cast<float>(); };
    return {u("ranks"),    u("blocks"),       u("layers"),       u("hidden"),   u("q_heads"),  u("kv_heads"),
            u("head_dim"), u("moe_hidden"),   u("intermediate"), u("experts"),  u("top_k"),    u("vocab"),
            u("capacity"), u("window"),       f("rms_eps"),      f("post_eps"), f("qk_scale"), f("output_multiplier"),
            f("softcap"),  f("routed_scale"), f("rope_theta")};
}

}  // namespace musetrace::bindings
