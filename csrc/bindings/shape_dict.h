// A model's shape as Python hands it over.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "muse/draft_shape.h"
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

inline DraftShape draft_from(const pybind11::object& values) {
    DraftShape draft;
    if (values.is_none()) return draft;
    const auto u = [&](const char* key) { return values[key].cast<std::uint32_t>(); };
    draft.layers = u("layers"), draft.q_heads = u("q_heads"), draft.kv_heads = u("kv_heads");
    draft.head_dim = u("head_dim"), draft.intermediate = u("intermediate"), draft.window = u("window");
    draft.mask_token = u("mask_token");
    for (const pybind11::handle layer : pybind11::list(values["targets"])) {
        if (draft.num_targets == kMaxTargetLayers) {
            throw std::invalid_argument("a draft takes " + std::to_string(kMaxTargetLayers) + " target layers at most");
        }
        draft.targets[draft.num_targets++] = layer.cast<std::uint32_t>();
    }
    draft.rms_eps = values["rms_eps"].cast<float>(), draft.rope_theta = values["rope_theta"].cast<float>();
    return draft;
}

}  // namespace musetrace::bindings
