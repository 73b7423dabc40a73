// How the megakernel deals a layer's work and lays out its exchange, for the simulation of its protocol: the same
// functions as the kernel's.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/shape_dict.h"
#include "bindings/stop4_name.h"
#include "megakernel/draft/geometry.h"
#include "megakernel/step_state.h"

namespace py = pybind11;

namespace musetrace::bindings {
namespace {

using namespace megakernel;

// A shape by which the plan can divide.
Shape divisible(const py::dict& values) {
    const Shape s = shape_from(values);
    if (s.ranks == 0 || s.blocks == 0 || s.q_heads == 0) {
        throw std::invalid_argument("ranks, blocks and q_heads must be at least 1");
    }
    return s;
}

py::tuple share(const Share& s) { return py::make_tuple(s.begin, s.end); }

py::object unsupported_shape(const py::dict& values) {
    const char* wrong = unsupported(divisible(values));
    return wrong == nullptr ? py::object(py::none()) : py::str(wrong);
}

py::dict plan(const py::dict& values) {
    const Plan p = make_plan(divisible(values));
    py::dict out;
    out["dense_blocks"] = p.dense_blocks;
    out["pool_slices"] = p.pool_slices;
    out["qkv_slices"] = p.qkv_slices;
    out["head_slices"] = p.head_slices;
    out["splits"] = p.splits;
    out["norm_parts"] = p.norm_parts;
    return out;
}

py::dict shares(const py::dict& values, std::uint32_t block) {
    const Shape s = divisible(values);
    if (block >= s.blocks) throw std::invalid_argument("there is no block " + std::to_string(block));
    const BlockShares b = block_shares(s, make_plan(s), block);
    py::dict pool, qkv, out;
    pool["slice"] = b.pool.slice;
    pool["tiles"] = share(b.pool.tiles);
    pool["router"] = share(b.pool.router);
    pool["owned"] = share(b.pool.owned);
    pool["pairs"] = b.pool.pairs();
    qkv["slice"] = b.qkv.slice;
    qkv["tiles"] = share(b.qkv.tiles);
    out["units"] = share(b.units);
    out["pool"] = pool;
    out["qkv"] = qkv;
    return out;
}

py::dict expert_tiles(const py::dict& values) {
    const ExpertTiles tiles(divisible(values));
    py::dict out;
    out["gemm1"] = tiles.gemm1;
    out["gemm2"] = tiles.gemm2;
    return out;
}

py::dict exchange(const py::dict& values, const std::string& stop4) {
    const Shape s = divisible(values);
    const ExchangeLayout e = make_exchange(s, make_plan(s), stop4_of(stop4));
    py::dict out;
    out["attention"] = e.attention;
    out["heads"] = e.heads;
    out["sums1"] = e.sums1;
    out["x1"] = e.x1;
    out["pool"] = e.pool;
    out["router"] = e.router;
    out["expert_x"] = e.expert_x;
    out["combined"] = e.combined;
    out["sums5"] = e.sums5;
    out["x5"] = e.x5;
    out["qkv"] = e.qkv;
    out["pooled"] = e.pooled;
    out["logits"] = e.logits;
    out["features"] = e.features;
    out["outputs"] = e.outputs;
    out["squares"] = e.squares;
    out["partial1"] = e.partial1;
    out["partial5"] = e.partial5;
    out["bytes"] = e.bytes;
    out["ones_bytes"] = e.ones_bytes();
    return out;
}

// Of a draft and its target.
draft::DraftSizes draft_sizes(const py::dict& target, const py::dict& values) {
    return draft::sizes_of(divisible(target), draft_from(values));
}

py::object unsupported_draft(const py::dict& target, const py::dict& values) {
    const char* wrong = draft::unsupported(draft_sizes(target, values));
    return wrong == nullptr ? py::object(py::none()) : py::str(wrong);
}

py::dict draft_plan(const py::dict& target, const py::dict& values) {
    const draft::DraftSizes s = draft_sizes(target, values);
    const draft::DraftPlan p = make_plan(s);
    py::dict out;
    out["dense_blocks"] = p.dense_blocks;
    out["slices"] = p.slices;
    out["splits"] = p.splits;
    out["feature_columns"] = s.feature_columns;
    out["feature_k"] = s.feature_k;
    return out;
}

py::dict draft_shares_of(const py::dict& target, const py::dict& values, std::uint32_t block) {
    const draft::DraftSizes s = draft_sizes(target, values);
    const draft::DraftShares b = draft::draft_shares(s, make_plan(s), block);
    py::dict out;
    out["units"] = share(b.units);
    const auto dense = [&](const char* name, const DenseShare& of) {
        py::dict one;
        one["slice"] = of.slice;
        one["tiles"] = share(of.tiles);
        out[name] = one;
    };
    dense("gate_up", b.gate_up);
    dense("qkv", b.qkv);
    dense("context", b.context);
    return out;
}

// Where the rows of a tree stand: depths, and for each row a bit for every row that it sees.
py::tuple tree_rows_of(const std::vector<std::uint32_t>& parents) {
    if (parents.size() != kTokens) throw std::invalid_argument("a tree has 16 nodes");
    for (std::uint32_t row = 1; row < kTokens; ++row) {
        if (parents[row] >= row) throw std::invalid_argument("a parent must stand before its child");
    }
    const RowPlaces rows = tree_rows(parents.data());
    return py::make_tuple(std::vector<std::uint32_t>(rows.depth, rows.depth + kTokens),
                          std::vector<std::uint32_t>(rows.sees, rows.sees + kTokens));
}

py::tuple share_of(std::uint32_t total, std::uint32_t part, std::uint32_t parts) {
    if (parts == 0) throw std::invalid_argument("parts must be at least 1");
    return share(block_share(total, part, parts));
}

}  // namespace

void bind_geometry(py::module_ module) {
    module.attr("TOKENS") = kTokens;
    module.attr("GROUP_WARPS") = kGroupWarps;
    module.attr("FIRST_GROUP_WARP") = kFirstGroupWarp;
    module.attr("PART_FLOATS") = kPartFloats;
    module.attr("SUM_FLOATS") = kSumFloats;
    module.attr("EXPERT_TOKENS") = kExpertTokens;
    module.attr("EXPERT_TILE_ROWS") = kExpertTileRows;
    module.attr("TILE_FEATURES") = kTileFeatures;
    module.attr("TILE_ROWS") = kTileRows;
    module.attr("UNIT_ROWS") = kUnitRows;
    module.attr("CHUNK_K") = kChunkK;
    module.def("stage_k", &stage_k, py::arg("k"), "K of one stage of the ring");
    module.def("bf16_stage_bytes", [](std::uint32_t k) { return Bf16Unit::bytes(stage_k(k)); }, py::arg("k"));
    module.def(
        "nvfp4_stage_bytes", [](std::uint32_t k) { return Nvfp4Unit::kUnits * Nvfp4Unit::bytes(stage_k(k)); },
        py::arg("k"));
    module.def("pair_place", &pair_place, py::arg("pair"), "Word of a chunk in which a pair of columns stands");
    module.def("block_share", &share_of, py::arg("total"), py::arg("part"), py::arg("parts"), "(begin, end)");
    module.def("unsupported", &unsupported_shape, py::arg("shape"), "What the kernel cannot run of a shape, or None");
    module.def("plan", &plan, py::arg("shape"));
    module.def("shares", &shares, py::arg("shape"), py::arg("block"), "A block's units, pooler and router, and qkv");
    module.def("draft_unsupported", &unsupported_draft, py::arg("target"), py::arg("draft"));
    module.def("draft_plan", &draft_plan, py::arg("target"), py::arg("draft"));
    module.def("draft_shares", &draft_shares_of, py::arg("target"), py::arg("draft"), py::arg("block"),
               "A block's units of the residual stream, and its tiles of gate and up, q, k, v, and the context");
    module.def("tree_rows", &tree_rows_of, py::arg("parents"), "(depths, rows that each row sees as bits)");
    module.def("expert_tiles", &expert_tiles, py::arg("shape"), "Tiles of a work item");
    module.def("exchange", &exchange, py::arg("shape"), py::arg("stop4"), "Byte offsets of a copy of the exchange");
}

}  // namespace musetrace::bindings
