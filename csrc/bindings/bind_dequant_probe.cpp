// Probes of packed weights, and the layout that the device takes them to have.
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "bindings/cuda_memory.h"
#include "megakernel/fragment.h"
#include "probe/dequant_probe.cuh"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style>;

template <class T>
DeviceMemory on_device(const Array<T>& array) {
    return DeviceMemory(array.data(), static_cast<std::size_t>(array.nbytes()));
}

// On the CPU, so that the sequence itself is tested where there is no GPU.
Array<std::uint32_t> extract_codes(const Array<std::uint32_t>& words) {
    if (words.ndim() != 1) throw std::invalid_argument("words must be uint32 [count]");
    Array<std::uint32_t> out({words.shape(0), py::ssize_t{4}});
    for (py::ssize_t i = 0; i < words.shape(0); ++i) {
        const megakernel::AFragment fragment = megakernel::extract_codes(words.at(i));
        for (py::ssize_t reg = 0; reg < 4; ++reg) out.mutable_at(i, reg) = fragment.reg[reg];
    }
    return out;
}

py::dict packed_layout(const std::string& format, std::uint32_t k) {
    const std::uint32_t length = megakernel::stage_k(k);
    py::dict layout;
    layout["stage_k"] = length;
    layout["product_exponent"] = megakernel::kProductExponent;
    if (format == "bf16") {
        layout["units"] = megakernel::Bf16Unit::kUnits;
        layout["unit_bytes"] = megakernel::Bf16Unit::bytes(length);
        layout["code_bytes"] = megakernel::Bf16Unit::bytes(length);
    } else if (format == "nvfp4") {
        layout["units"] = megakernel::Nvfp4Unit::kUnits;
        layout["unit_bytes"] = megakernel::Nvfp4Unit::bytes(length);
        layout["code_bytes"] = megakernel::Nvfp4Unit::code_bytes(length);
    } else {
        throw std::invalid_argument("no packed format is called '" + format + "'; choose bf16 or nvfp4");
    }
    return layout;
}

py::array dequant_words(const Array<std::uint32_t>& words, const Array<std::uint32_t>& scales) {
    if (words.ndim() != 2 || words.shape(1) != 2 || scales.ndim() != 1 || scales.shape(0) != words.shape(0) ||
        words.size() == 0 || words.shape(0) > 1 << 28) {
        throw std::invalid_argument("words must be uint32 [count, 2] and scales uint32 [count], count 1 to 2^28");
    }
    const DeviceMemory word_memory = on_device(words), scale_memory = on_device(scales);
    const DeviceMemory out(static_cast<std::size_t>(words.nbytes()) * 4);
    check(probe::run_dequant_words(word_memory.as<std::uint32_t>(), scale_memory.as<std::uint32_t>(),
                                   static_cast<std::uint32_t>(words.shape(0)), out.as<std::uint32_t>()),
          "running the dequantisation probe");
    return out.to_host<std::uint16_t>().reshape({words.shape(0), py::ssize_t{2}, py::ssize_t{4}, py::ssize_t{2}});
}

py::array packed_product(const std::string& format, const Array<std::uint8_t>& packed,
                         const Array<std::uint16_t>& tokens) {
    if (tokens.ndim() != 2 || tokens.shape(0) != 8 || tokens.shape(1) < 1 || tokens.shape(1) > 1 << 20) {
        throw std::invalid_argument("tokens must be uint16 [8, K], bf16 bits");
    }
    const auto k = static_cast<std::uint32_t>(tokens.shape(1)), length = megakernel::stage_k(k);
    const auto layout = packed_layout(format, k);
    const bool bf16 = format == "bf16";
    const std::uint32_t multiple = bf16 ? megakernel::Bf16Unit::kLoadK : megakernel::Nvfp4Unit::kScaleLoadK;
    const std::size_t tile_bytes = std::size_t{layout["unit_bytes"].cast<std::uint32_t>()} * (k / length);
    const std::size_t block_bytes = tile_bytes * layout["units"].cast<std::uint32_t>();
    const auto bytes = static_cast<std::size_t>(packed.nbytes());
    if (k % length != 0 || k % multiple != 0 || packed.ndim() != 1 || bytes == 0 || bytes % block_bytes != 0 ||
        bytes / tile_bytes > 1 << 20) {
        throw std::invalid_argument("packed weights of " + std::to_string(bytes) + " bytes are no " + format +
                                    " matrix with K = " + std::to_string(k));
    }
    const auto tiles = static_cast<std::uint32_t>(bytes / tile_bytes);
    const DeviceMemory packed_memory = on_device(packed), token_memory = on_device(tokens);
    const DeviceMemory out(std::size_t{tiles} * megakernel::kTileRows * 8 * sizeof(float));
    check(probe::run_packed_product(bf16 ? probe::PackedFormat::kBf16 : probe::PackedFormat::kNvfp4,
                                    packed_memory.as<char>(), token_memory.as<std::uint32_t>(), tiles, k,
                                    out.as<float>()),
          "running the packed product");
    return out.to_host<float>().reshape({py::ssize_t{tiles} * megakernel::kTileRows, py::ssize_t{8}});
}

}  // namespace

void bind_dequant_probe(py::module_& module) {
    module.def("packed_layout", &packed_layout, py::arg("format"), py::arg("k"),
               "the sizes of packed weights as the device has them: stage_k, units, unit_bytes, code_bytes");
    module.def("extract_codes", &extract_codes, py::arg("words"),
               "uint32[count, 4]: registers a0 to a3 before the scales; runs on the CPU");
    module.def("dequant_words", &dequant_words, py::arg("words"), py::arg("scales"),
               "uint16[count, 2, 4, 2]: bf16 bits (fragment, register, half) of words uint32[count, 2] under the scale "
               "words uint32[count]");
    module.def("packed_product", &packed_product, py::arg("format"), py::arg("packed"), py::arg("tokens"),
               "fp32[rows, 8]: accumulators of packed weights uint8[nbytes] times tokens uint16[8, K] (bf16 bits); "
               "NVFP4 accumulators carry 2^-51");
}

}  // namespace musetrace::bindings
