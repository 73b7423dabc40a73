// Probes of the expert stream: the result of small cases, the time of large ones.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/cuda_memory.h"
#include "megakernel/fragment.h"
#include "probe/expert_probe.cuh"
#include "probe/random_words.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using probe::ExpertVariant;

template <class T>
using Array = py::array_t<T, py::array::c_style>;
using VariantTuple = std::tuple<std::string, bool, std::uint32_t>;

constexpr std::uint32_t kStageK = megakernel::kMaxStageK;
constexpr std::uint32_t kStageBytes = megakernel::Nvfp4Unit::kUnits * megakernel::Nvfp4Unit::bytes(kStageK);
constexpr std::uint32_t kNoBlock = std::numeric_limits<std::uint32_t>::max();

ExpertVariant variant_of(const VariantTuple& names) {
    const auto& [work, move_registers, in_flight_bytes] = names;
    if (work == "stream") return {probe::ExpertWork::kStream, move_registers, in_flight_bytes};
    if (work == "dequant") return {probe::ExpertWork::kDequant, move_registers, in_flight_bytes};
    if (work == "multiply") return {probe::ExpertWork::kMultiply, move_registers, in_flight_bytes};
    throw std::invalid_argument("no expert probe is called '" + work + "'; choose stream, dequant or multiply");
}

// Nothing is launched that the device cannot hold at once.
probe::ExpertFit check_fit(const ExpertVariant& variant, std::uint32_t blocks) {
    const probe::ExpertFit fit = probe::fit_expert_probe(variant);
    if (blocks == 0 || blocks > static_cast<std::uint32_t>(fit.blocks)) {
        throw std::invalid_argument("the expert probe cannot have " + std::to_string(blocks) + " blocks of " +
                                    std::to_string(fit.shared_bytes) + " bytes of shared memory; choose 1 to " +
                                    std::to_string(fit.blocks));
    }
    return fit;
}

abi::WaitReport read_report(const DeviceMemory& memory) {
    abi::WaitReport report;
    check(cudaMemcpy(&report, memory.as<char>(), sizeof report, cudaMemcpyDeviceToHost), "copying the wait report");
    return report;
}

py::tuple expert_product(const VariantTuple& names, const Array<std::uint8_t>& packed,
                         const Array<std::uint16_t>& tokens, std::uint32_t blocks, std::uint32_t repeats,
                         py::object lost_stage, std::uint64_t budget_ns) {
    const ExpertVariant variant = variant_of(names);
    const auto bytes = static_cast<std::size_t>(packed.nbytes());
    const py::ssize_t k = tokens.ndim() == 2 && tokens.shape(0) == 8 ? tokens.shape(1) : 0;
    if (k < kStageK || k % kStageK != 0 || k / kStageK > probe::kExpertMaxStagesOfK) {
        throw std::invalid_argument("tokens must be uint16 [8, K], bf16 bits, K a multiple of 512 up to 4096");
    }
    if (packed.ndim() != 1 || bytes == 0 || blocks == 0 || bytes % (std::size_t{blocks} * kStageBytes) != 0 ||
        bytes / kStageBytes > 1 << 20 || repeats < 1 || repeats > 1000) {
        throw std::invalid_argument("packed weights of " + std::to_string(bytes) + " bytes are no whole stages of " +
                                    std::to_string(kStageBytes) + " bytes for each of " + std::to_string(blocks) +
                                    " blocks, or repeats is not 1 to 1000");
    }
    check_fit(variant, blocks);
    const DeviceMemory packed_memory(packed.data(), bytes);
    const DeviceMemory token_memory(tokens.data(), static_cast<std::size_t>(tokens.nbytes()));
    const DeviceMemory report(sizeof(abi::WaitReport));
    const std::size_t words = std::size_t{blocks} * probe::kExpertConsumers * probe::kExpertOutWords;
    const DeviceMemory out(repeats * words * sizeof(std::uint32_t));
    fill_bytes(out.as<char>(), 0xA5, repeats * words * sizeof(std::uint32_t), "poisoning the output");
    probe::ExpertInput input{packed_memory.as<char>(),
                             token_memory.as<std::uint32_t>(),
                             blocks,
                             static_cast<std::uint32_t>(bytes / kStageBytes / blocks),
                             static_cast<std::uint32_t>(k / kStageK),
                             lost_stage.is_none() ? kNoBlock : blocks - 1,
                             lost_stage.is_none() ? 0 : lost_stage.cast<std::uint32_t>(),
                             budget_ns,
                             report.as<abi::WaitReport>(),
                             nullptr};
    for (std::uint32_t repeat = 0; repeat < repeats; ++repeat) {
        input.out = out.as<std::uint32_t>() + repeat * words;
        probe::launch_expert_probe(variant, input, nullptr);
    }
    check(cudaDeviceSynchronize(), "running the expert probe");
    const abi::WaitReport said = read_report(report);
    return py::make_tuple(out.to_host<std::uint32_t>().reshape({py::ssize_t{repeats}, py::ssize_t{blocks},
                                                                py::ssize_t{probe::kExpertConsumers},
                                                                py::ssize_t{probe::kExpertOutWords}}),
                          py::bytes(reinterpret_cast<const char*>(&said), sizeof said));
}

// Nearest rank.
double percentile(const std::vector<float>& sorted, double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
    return sorted[std::max<std::size_t>(rank, 1) - 1];
}

py::dict timing_of(const VariantTuple& names, const probe::ExpertFit& fit, std::vector<float> us, double bytes) {
    std::sort(us.begin(), us.end());
    py::dict timing;
    timing["work"] = std::get<0>(names);
    timing["move_registers"] = std::get<1>(names);
    timing["in_flight_bytes"] = std::get<2>(names);
    timing["registers"] = fit.registers;
    timing["local_bytes"] = fit.local_bytes;
    timing["samples"] = us.size();
    timing["us_p10"] = percentile(us, 0.1);
    timing["us_p50"] = percentile(us, 0.5);
    timing["us_p90"] = percentile(us, 0.9);
    timing["tb_per_s"] = bytes / percentile(us, 0.5) * 1e-6;
    return timing;
}

std::vector<py::dict> expert_times(const std::vector<VariantTuple>& names, std::uint32_t blocks, std::uint32_t stages,
                                   std::uint32_t launches, std::uint32_t rounds) {
    // Bounds of a run: 2 x 200 x 16 x 1000 launches of 40 us are four minutes.
    if (names.empty() || names.size() > 16 || stages < 1 || stages > 10000 || launches < 1 || launches > 1000 ||
        rounds < 1 || rounds > 200) {
        throw std::invalid_argument("choose 1 to 16 variants, 10000 stages, 1000 launches and 200 rounds at most");
    }
    std::vector<ExpertVariant> variants;
    std::vector<probe::ExpertFit> fits;
    for (const VariantTuple& name : names) {
        variants.push_back(variant_of(name));
        fits.push_back(check_fit(variants.back(), blocks));
    }
    const std::size_t launch_bytes = std::size_t{blocks} * stages * kStageBytes;
    const DeviceMemory packed(launch_bytes * launches);
    probe::fill_random(packed.as<char>(), launch_bytes * launches);
    const std::size_t token_bytes = 8 * probe::kExpertMaxStagesOfK * kStageK * sizeof(std::uint16_t);
    const DeviceMemory tokens(token_bytes);
    probe::fill_random(tokens.as<char>(), token_bytes);
    const DeviceMemory report(sizeof(abi::WaitReport));
    const DeviceMemory out(std::size_t{blocks} * probe::kExpertConsumers * probe::kExpertOutWords * 4);
    const probe::ExpertInput input{packed.as<char>(),
                                   tokens.as<std::uint32_t>(),
                                   blocks,
                                   stages,
                                   probe::kExpertMaxStagesOfK,
                                   kNoBlock,
                                   0,
                                   100'000'000,
                                   report.as<abi::WaitReport>(),
                                   out.as<std::uint32_t>()};
    probe::Times us;
    {
        py::gil_scoped_release release;
        us = probe::time_expert_probe(variants, input, launches, rounds);
    }
    const abi::WaitReport said = read_report(report);
    if (said.claimed != 0) {
        throw std::runtime_error("block " + std::to_string(said.block) + " warp " + std::to_string(said.warp) +
                                 " of the expert probe waited " + std::to_string(said.waited_ns) + " ns in job " +
                                 std::to_string(said.site) + "; no figure of this run counts");
    }
    std::vector<py::dict> timings;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const auto first = us.values.begin() + static_cast<std::ptrdiff_t>(i * us.shape[1]);
        const std::vector<float> of_variant(first, first + static_cast<std::ptrdiff_t>(us.shape[1]));
        timings.push_back(timing_of(names[i], fits[i], of_variant, static_cast<double>(launch_bytes)));
    }
    return timings;
}

}  // namespace

void bind_expert_probe(py::module_& module) {
    module.def("expert_product", &expert_product, py::arg("variant"), py::arg("packed"), py::arg("tokens"),
               py::arg("blocks"), py::arg("repeats") = 1, py::arg("lost_stage") = py::none(),
               py::arg("budget_ns") = std::uint64_t{1'000'000'000},
               "(uint32[repeats, blocks, 256, 8], wait report of 48 bytes): what the consumer threads made of packed "
               "weights uint8[nbytes], an equal run of stages for each block, and tokens uint16[8, K]. A variant is "
               "(work, setmaxnreg, bytes in flight), work stream, dequant or multiply. From `lost_stage` on the last "
               "block's loader delivers nothing");
    module.def(
        "expert_times", &expert_times, py::arg("variants"), py::arg("blocks"), py::arg("stages"), py::arg("launches"),
        py::arg("rounds"),
        "a dict for each variant: us_p10, us_p50, us_p90 of a launch, tb_per_s, registers, local_bytes, samples. "
        "Graphs of `launches` launches over random weights, variants interleaved forward and backward");
}

}  // namespace musetrace::bindings
