"""Bytes of the built-in jobs, against what is packed, what the blocks are dealt, and draws counted out."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import musetrace
from musetrace import _core
from musetrace.analysis.engines.moved_parts import parts_of_launch
from musetrace.job_bytes import JobBytes, RunBytes
from musetrace.job_table import JobTable
from musetrace.muse import MuseConfig, preset
from musetrace.muse.cuda_draft import RandomDraft, random_embedding
from musetrace.muse.cuda_tables import step_table
from musetrace.muse.decode import DecodeOptions, record_decode
from musetrace.muse.device import shape_of
from musetrace.muse.draft.config import draft_of
from musetrace.muse.draft.job_bytes import DraftBytes
from musetrace.muse.draft.sharding import shard_draft
from musetrace.muse.draft.weights import synthesize_draft
from musetrace.muse.expert_draws import Draws
from musetrace.muse.job_bytes import (
    IN_FLIGHT_BYTES,
    STREAM_IN_FLIGHT_BYTES,
    ModelBytes,
    bytes_of_older_run,
)
from musetrace.muse.packed_layer import pack_layer
from musetrace.muse.sharding import shard_head, shard_layer
from musetrace.muse.weights import synthesize, synthesize_layer

SLICE, MINI = preset("muse-spark-open-tp8-slice"), preset("mini")
TOKENS, BLOCKS, CAPACITY = 16, 132, 4128
GEOMETRY: Any = _core.megakernel


def of_slice(**more: Any) -> ModelBytes:
    return ModelBytes(
        **{"config": SLICE, "tp": 8, "layers": 62, "blocks": BLOCKS, "packed": True, "pool": 53, **more}
    )


def exact(jobs: Any) -> dict[str, int]:
    return {name: of.expected for name, of in jobs.items() if of.low == of.high}


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("layer", [0, 1, 7])
def test_weights_are_the_bytes_that_are_packed(tp: int, layer: int) -> None:
    packed = pack_layer(shard_layer(synthesize_layer(MINI, 5, layer), MINI, tp - 1, tp))
    jobs = ModelBytes(MINI, tp, 8, 2, packed=True, pool=8).layer(layer).jobs
    told = exact(jobs)
    assert told["o_proj_load"] == packed.o.data.nbytes
    assert told["pooler_load"] == packed.pooler.data.nbytes
    assert told["router_load"] == packed.router.nbytes
    assert told["unpooler_load"] == packed.unpooler.data.nbytes
    # A launch ends with the projection of the next layer, which has the same shape; the last has none.
    assert told.get("qkv_load") == (packed.qkvg.data.nbytes if layer < 7 else None)
    fewest, _ = Draws(8, TOKENS, MINI.num_experts_per_tok).distinct_range
    for job, stack in (("gemm1_load", packed.gate_up), ("gemm2_load", packed.down)):
        assert jobs[job].low == fewest * stack.data[0].nbytes
    dense = ("qkv_load", "o_proj_load", "pooler_load", "router_load", "unpooler_load")
    if layer < 7:
        assert sum(told[name] for name in dense) == packed.dense_bytes


def test_on_the_cpu_weights_are_the_bytes_of_the_shard() -> None:
    weights = synthesize(replace(MINI, num_hidden_layers=2), 3)
    shard, head = shard_layer(weights.layers[0], MINI, 0, 2), shard_head(weights.head, MINI, 0, 2)
    entry, *layers, last = ModelBytes(MINI, 2, 8, 1, packed=False, pool=16).launches()
    told = exact(layers[0].jobs)
    for job, tensor in (
        ("qkv_load", shard.qkvg),
        ("o_proj_load", shard.o),
        ("pooler_load", shard.pooler),
        ("router_load", shard.router),
        ("unpooler_load", shard.unpooler),
    ):
        assert told[job] == tensor.numel() * tensor.element_size()
    assert exact(entry.jobs) == {"qkv_load": told["qkv_load"]}
    assert exact(last.jobs) == {"lm_head_load": head.lm_head.numel() * 2}
    assert shard.gate_up is not None
    most = layers[0].jobs["gemm1_load"].high
    assert most % (shard.gate_up[0].numel() * 2) == 0


def test_what_the_blocks_are_dealt_adds_up_to_each_matrix() -> None:
    """Tile by tile and stage by stage, as ``load_tiles`` and ``load_router`` go through them."""
    shape = shape_of(SLICE, 8, BLOCKS, CAPACITY, 62)
    plan, moved = GEOMETRY.plan(shape), Counter[str]()
    stage_k, stage_bytes = GEOMETRY.stage_k(8192), GEOMETRY.bf16_stage_bytes(8192)
    for block in range(BLOCKS):
        shares = GEOMETRY.shares(shape, block)
        units = shares["units"][1] - shares["units"][0]
        for job, k in (("o_proj_load", 1024), ("unpooler_load", 512)):
            moved[job] += 2 * units * (k // GEOMETRY.stage_k(k)) * GEOMETRY.bf16_stage_bytes(k)
        for job, share, slices in (
            ("pooler_load", shares["pool"], plan["pool_slices"]),
            ("qkv_load", shares["qkv"], plan["qkv_slices"]),
        ):
            tiles = share["tiles"][1] - share["tiles"][0]
            moved[job] += tiles * (8192 // stage_k // slices) * stage_bytes
        rows = shares["pool"]["router"][1] - shares["pool"]["router"][0]
        moved["router_load"] += rows * (8192 // plan["pool_slices"]) * 4
    assert {job: of_slice().layer(2).jobs[job].expected for job in moved} == dict(moved)
    # The figures of csrc/megakernel/NOTES.md.
    assert sum(moved.values()) == 71_303_168 + 1_048_576
    one = of_slice(pool=8).layer(2).jobs  # 16 tokens that all take the same eight, two items each
    assert (one["gemm1_load"].low, one["gemm2_load"].low) == (8 * 2_359_296, 8 * 1_179_648)
    assert one["gemm1_load"].expected + one["gemm2_load"].expected == 16 * 3_538_944


@pytest.mark.parametrize("stop4", ["sumsq", "gather"])
@pytest.mark.parametrize(("config", "tp"), [(SLICE, 8), (MINI, 2)])
def test_messages_are_as_large_as_the_slots_that_they_fill(config: MuseConfig, tp: int, stop4: str) -> None:
    """What a rank sends to all ranks is, for all ranks are alike, what it receives: every slot once."""
    shape = shape_of(config, tp, BLOCKS, CAPACITY, config.num_hidden_layers)
    at = GEOMETRY.exchange(shape, stop4)
    told = ModelBytes(config, tp, 8, 2, packed=True, stop4=stop4).layer(1).jobs
    pairs = TOKENS * config.num_experts_per_tok
    sizes = {
        "o_proj_send": tp * TOKENS * config.hidden_size * 2,
        "unpooler_send": tp * TOKENS * config.hidden_size * 2,
        "router_send": at["features"] - at["pooled"],
        "gemm1_send": at["outputs"] - at["features"],
        "gemm2_send": at["partial1"] - at["outputs"],
    }
    if stop4 == "gather":  # no squares are sent, although they have slots
        sizes["gemm2_send"] = at["squares"] - at["outputs"]
    assert at["partial5"] - at["partial1"] == sizes["o_proj_send"] == at["bytes"] - at["partial5"]
    assert {job: told[job].expected for job in sizes} == sizes
    assert pairs * config.moe_intermediate_size * 2 == sizes["gemm1_send"]


@pytest.mark.parametrize("position", [0, 1, 31, 2032, 2047, 2048, 2049, 4096, 5001])
@pytest.mark.parametrize("layer", [1, 2])
def test_attention_takes_every_row_that_a_token_sees_in_whole_runs(position: int, layer: int) -> None:
    seen = set()
    for token in range(position, position + TOKENS):
        oldest = 0 if SLICE.is_global(layer) else max(0, token + 1 - SLICE.sliding_window)
        seen.update(key // 32 for key in range(oldest, token + 1))
    kv_heads, head_dim, keys_and_values, bf16 = 2, 64, 2, 2
    expected = len(seen) * 32 * kv_heads * head_dim * keys_and_values * bf16
    assert of_slice(position=position).layer(layer).jobs["attention_compute"] == JobBytes.exact(expected)


def test_draws_are_those_of_all_ways_to_draw() -> None:
    pool, tokens, top_k = 4, 3, 2
    ways = list(product(combinations(range(pool), top_k), repeat=tokens))
    distinct = Counter(len({expert for one in way for expert in one}) for way in ways)
    draws = Draws(pool, tokens, top_k)
    assert draws.chances == pytest.approx([distinct[number] / len(ways) for number in range(pool + 1)])
    assert draws.distinct == pytest.approx(sum(n * count for n, count in distinct.items()) / len(ways))
    assert draws.items == pytest.approx(draws.distinct)  # no expert has more than eight of three tokens


def test_a_pool_of_53_is_used_as_it_was_measured() -> None:
    """62 layers of an H200: 44 to 53 experts, 48.8 in the mean (facts of the slice's synthetic weights)."""
    draws, rng = Draws(53, 16, 8), np.random.default_rng(1)
    drawn = [rng.permuted(np.tile(np.arange(53), (16, 1)), axis=1)[:, :8] for _ in range(4000)]
    counts = [np.bincount(one.ravel(), minlength=53) for one in drawn]
    distinct = np.array([(one > 0).sum() for one in counts])
    items = np.array([(-(-one // 8)).sum() for one in counts])
    assert draws.distinct == pytest.approx(distinct.mean(), abs=0.1)
    assert draws.items == pytest.approx(items.mean(), abs=0.1)
    low, high = draws.distinct_range
    assert ((items >= low) & (items <= high)).mean() >= 0.99
    assert (low, high - 1) == (44, 53)
    assert 44 < 48.8 < draws.distinct < 49.2


def test_layers_that_move_the_same_stand_together_and_the_last_projects_nothing() -> None:
    launches = of_slice(layers=6, position=4096).launches()
    assert [(one.kind, one.layers) for one in launches] == [
        ("entry", None),
        ("sliding", (0,)),  # bf16 experts
        ("global", (1,)),
        ("sliding", (2, 3, 4)),
        ("global", (5,)),  # the last that runs
        ("head", None),
    ]
    assert ["qkv_load" in one.jobs for one in launches] == [True, True, True, True, False, False]
    bf16, nvfp4 = launches[1].jobs["gemm1_load"], launches[3].jobs["gemm1_load"]
    assert bf16.low * 9 == nvfp4.low * 32  # 16 bits against 4.5
    assert of_slice().layer(61).jobs["gemm1_load"].low == bf16.low


def test_what_may_arrive_behind_the_end_of_a_span_is_what_a_loader_may_have_on_its_way(
    repository: Path,
) -> None:
    options = (repository / "csrc/megakernel/muse_device.h").read_text()
    ring = (repository / "csrc/sync/gpu_ring.cuh").read_text()
    assert "in_flight_bytes = 18'432;" in options
    assert IN_FLIGHT_BYTES == 18_432
    assert "kInFlightBytes = 48 * 1024;" in ring
    assert STREAM_IN_FLIGHT_BYTES == 48 * 1024
    jobs, bf16 = of_slice().layer(2).jobs, of_slice().layer(0).jobs
    dense, nvfp4 = GEOMETRY.bf16_stage_bytes(8192), GEOMETRY.nvfp4_stage_bytes(4096)
    assert jobs["o_proj_load"].late == BLOCKS * (18_432 + dense)
    assert jobs["gemm2_load"].late == BLOCKS * (18_432 + nvfp4)
    assert bf16["gemm2_load"].late == BLOCKS * (49_152 + dense)
    head = of_slice().launches()[-1].jobs["lm_head_load"]
    assert (
        "ring(w.shared.ring, sync::kInFlightBytes);"
        in (repository / "csrc/megakernel/head_entry.cuh").read_text()
    )
    assert head.late == BLOCKS * (49_152 + dense)
    assert jobs["router_load"].late == jobs["router_load"].expected  # 8 KB a block are all on their way
    assert jobs["o_proj_send"].late == jobs["o_proj_send"].expected
    on_cpu = ModelBytes(MINI, 2, 8, 2, packed=False, pool=8).layer(1).jobs
    assert {of.late for of in on_cpu.values()} == {0}


def test_what_is_not_known_is_said_to_be_so() -> None:
    of = ModelBytes(MINI, 2, 8, 1, packed=True).layer(1)
    assert set(of.unknown) == {"gemm1_load", "gemm2_load", "attention_compute"}
    assert not set(of.unknown) & set(of.jobs)
    for name, packed in (("muse_hopper", True), ("muse_layer", False)):
        jobs = {job.name for job in JobTable.built_in(name).jobs}
        for one in ModelBytes(MINI, 2, 8, 1, packed=packed, pool=8, position=0).launches():
            assert set(one.jobs) | set(one.unknown) <= jobs


@pytest.mark.usefixtures("one_torch_thread")
def test_a_draft_pass_loads_each_matrix_of_its_rank_once() -> None:
    draft, tp = draft_of(MINI), 2
    share = shard_draft(synthesize_draft(draft, 1), MINI, 1, tp)
    of = {(one.kind, one.layers): one for one in DraftBytes(draft, MINI, tp).launches()}
    first, last = of["draft_layer", (0, 1, 2, 3)], of["draft_layer", (4,)]
    context = of["draft_context", None].jobs
    layer = share.layers[2]
    pairs = [
        (context["fc_load"], share.fc),
        (context["qkv_load"], layer.qkv),
        (first.jobs["qkv_load"], layer.qkv),
        (last.jobs["o_proj_load"], layer.o),
        (last.jobs["gate_up_load"], layer.gate_up),
        (last.jobs["down_load"], layer.down),
    ]
    for known, matrix in pairs:
        assert known.expected == matrix.numel() * matrix.element_size()
    # k and v heads of five layers: 2 x 2 heads x 128 rows x 512.
    assert context["context_load"].expected == 5 * 2 * 2 * 128 * 512 * 2
    assert last.jobs["down_send"].expected == 2 * 16 * 512 * 2
    assert "qkv_load" not in last.jobs
    jobs = {job.name for job in JobTable.built_in("muse_layer").jobs}
    assert all(set(one.jobs) | set(one.unknown) <= jobs for one in of.values())


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_on_a_gpu_a_draft_pass_loads_what_is_packed(tp: int) -> None:
    draft = draft_of(MINI)
    source = RandomDraft(draft, tp, 0, random_embedding(MINI, 0, torch.device("cpu")))
    layer, fc = source.layer(0, 0), source.outer(0)["fc"]
    of = ModelBytes(MINI, tp, 8, 3, packed=True, draft=draft).launches()
    context, first, last, head = of[:4]
    assert [one.kind for one in of[:4]] == ["draft_context", "draft_layer", "draft_layer", "draft_head"]
    assert (first.layers, last.layers) == ((0, 1, 2, 3), (4,))
    assert context.jobs["fc_load"].expected == fc.nbytes
    loads = {
        "draft.qkv_load": "qkv",
        "draft.o_proj_load": "o",
        "gate_up_load": "gate_up",
        "down_load": "down",
    }
    for job, matrix in loads.items():
        assert first.jobs[job].expected == layer[matrix].nbytes
        # As the loader has it: 32 KB in each of three blocks, and a stage of 16 rows x at most 512.
        stage = 16 * min(512, layer[matrix].shape[1]) * 2
        assert first.jobs[job].late == min(layer[matrix].nbytes, 3 * (32_768 + stage))
    assert set(first.jobs) - set(last.jobs) == {"draft.qkv_load"}
    assert head.jobs == of[-1].jobs
    # Sixteen rows of 512 in bf16, to every rank.
    assert first.jobs["down_send"] == JobBytes.exact(tp * 16 * 512 * 2, tp * 16 * 512 * 2)
    jobs = {job.name for job in step_table().table.jobs}
    assert all(set(one.jobs) | set(one.unknown) <= jobs for one in of)


def test_phases_of_a_launch_end_with_its_own_stops_in_a_table_of_several_kernels() -> None:
    """The target's stops stand before the draft's jobs, by the same names."""
    table = step_table().table
    of = {one.kind: one for one in of_slice(draft=draft_of(SLICE)).launches() if one.layers != (4,)}
    found = {}
    for kind, stops in (("draft_layer", 2), ("sliding", 5)):
        parts = parts_of_launch(table, of[kind], [f"stop{number + 1}" for number in range(stops)])
        found[kind] = [None if one is None else one.expected for one in parts.phases]
    # What attention reads is not known; then gate, up and down; then q, k and v: rows x K in bf16.
    assert found["draft_layer"] == [None, 2 * 3 * 2048 * 8192, 2 * (8 + 2) * 128 * 8192]
    jobs = of["sliding"].jobs
    ends = ("gemm1_load", "gemm2_load", "unpooler_load", "qkv_load")
    assert found["sliding"][2:] == [jobs[name].expected for name in ends]


def test_an_older_run_of_the_slice_is_worked_out_from_its_manifest() -> None:
    model = SLICE.to_json() | {"layers_run": 6, "expert_pool": 53, "seed": 0}
    manifest = {
        "model": model,
        "build": {"tp": 8, "stop4": "sumsq"},
        "device": {"kind": "cuda"},
        "command": ["python", "-m", "musetrace", "record", "--model", SLICE.name],
        "ranks": [{"blocks": BLOCKS}],
    }
    older = partial(of_slice, layers=6, head_in_flight_bytes=18_432)
    assert bytes_of_older_run(manifest).launches == older(position=4096).launches()
    command = [*manifest["command"], "--context", "100"]
    told = bytes_of_older_run({**manifest, "command": command}).launches
    assert told == older(position=100).launches()
    others = bytes_of_older_run({**manifest, "command": ["my_own.py"]}).launches
    assert others == older().launches()


@pytest.mark.parametrize("manifest", [{}, {"model": {}}, {"model": {"name": 3}, "build": [], "device": "x"}])
def test_a_run_without_the_model_has_a_note_instead(manifest: dict[str, Any]) -> None:
    found = bytes_of_older_run(manifest)
    assert found.launches == ()
    assert "\n" not in found.note


def test_the_recorder_keeps_them_in_the_run(tmp_path: Path) -> None:
    with musetrace.record(tmp_path / "run") as recorder:
        record_decode(recorder, DecodeOptions(device="cpu", steps=1, tp=2, blocks=1), lambda done, of: None)
    manifest = musetrace.open(tmp_path / "run").manifest
    kept = RunBytes.of_manifest(json.loads(json.dumps(manifest)))
    expected = ModelBytes(MINI, 2, 8, 1, packed=False, stop4="gather", draft=draft_of(MINI))
    assert kept.launches == expected.launches()
    projecting, last = kept.of("global", 3), kept.of("global", 7)
    assert projecting is not None
    assert last is not None
    assert set(projecting.jobs) - set(last.jobs) == {"qkv_load"}
