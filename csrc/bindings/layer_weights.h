// A layer's weights by the names that Python gives their addresses.
#pragma once

#include <cstdint>

#include "megakernel/draft/draft_device.h"
#include "megakernel/layer_params.h"

namespace musetrace::bindings {

// `address(name)`: a device address as an integer; it says what is wrong with it.
template <class Address>
megakernel::LayerWeights layer_weights(Address address) {
    const auto bytes = [&](const char* name) { return reinterpret_cast<const char*>(address(name)); };
    const auto floats = [&](const char* name) { return reinterpret_cast<const float*>(address(name)); };
    return {bytes("o"),
            bytes("pooler"),
            floats("router"),
            bytes("unpooler"),
            bytes("gate_up"),
            bytes("down"),
            floats("gate_up_factor"),
            floats("down_factor"),
            floats("router_bias"),
            floats("pre_ffn_norm"),
            floats("post_ffn_norm"),
            floats("pre_expert_norm"),
            floats("post_expert_norm"),
            floats("attn_alpha"),
            floats("attn_beta"),
            floats("ffn_alpha"),
            floats("ffn_beta")};
}

// The layer's own projection, as the one in front of it sees it.
template <class Address>
megakernel::NextWeights own_projection(Address address) {
    return {reinterpret_cast<const char*>(address("qkvg")), reinterpret_cast<const float*>(address("input_norm"))};
}

template <class Address>
megakernel::draft::DraftLayerWeights draft_layer_weights(Address address) {
    const auto bytes = [&](const char* name) { return reinterpret_cast<const char*>(address(name)); };
    const auto floats = [&](const char* name) { return reinterpret_cast<const float*>(address(name)); };
    return {bytes("qkv"),         bytes("o"),         bytes("gate_up"), bytes("down"),
            floats("input_norm"), floats("mlp_norm"), floats("q_norm"), floats("k_norm")};
}
template <class Address>
megakernel::draft::OuterWeights draft_outer_weights(Address address) {
    return {reinterpret_cast<const char*>(address("fc")), reinterpret_cast<const float*>(address("context_norm")),
            reinterpret_cast<const float*>(address("norm")),
            reinterpret_cast<const std::uint16_t*>(address("embedding"))};
}

}  // namespace musetrace::bindings
