"""Journals to tables: against the slow reader, and what the manifest says about what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.store import open_run
from musetrace.store.frame import ChunkType
from musetrace.store.index import MANIFEST, index_run
from tests import slow_reader
from tests.builders import (
    SMALL_RUN_TEXT,
    JournalBuilder,
    LaunchStamps,
    build_run,
    build_run_from_text,
    launch_at,
    small_table,
    wide_table,
)

T0 = 9_000_000_000_000
COLUMNS = ("begin", "dur", "job", "launch", "layer", "block", "sm", "warp", "flag")


def random_launches(seed: int, slot_bytes: int) -> list[LaunchStamps]:
    """A few steps of launches with everything that can be odd about them."""
    random = np.random.default_rng(seed)
    launches = []
    for number in range(7):
        begin = T0 + 100_000 * number
        slots = random.integers(begin, begin + 5000, (3, 16)).astype(np.uint64)
        slots[random.random(slots.shape) < 0.3] = 0
        slots[random.random(slots.shape) < 0.05] = np.uint64(12345)
        epochs = np.full(3, number + 1, dtype=np.uint32)
        epochs[random.random(3) < 0.2] = number
        launches.append(
            LaunchStamps(
                step=number // 3,
                launch=number % 3,
                slots=slots,
                header_ns=np.full(3, begin, dtype=np.uint64),
                epoch=number + 1,
                epochs=epochs,
                overflow=random.integers(0, 3, 3).astype(np.uint32),
                submit_ns=begin - 10,
                done_ns=begin + 6000,
            )
        )
    return launches


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([4, 8]))
def test_tables_equal_those_of_the_slow_reader(
    tmp_path_factory: pytest.TempPathFactory, seed: int, slot_bytes: int
) -> None:
    launches = random_launches(seed, slot_bytes)
    folder = tmp_path_factory.mktemp("run") / "r"
    build_run(folder, {0: launches}, small_table(), 3, slot_bytes=slot_bytes)
    run = open_run(folder)
    expected = slow_reader.read_spans((folder / "rank-0000.mtj").read_bytes())
    assert run.step_ids(0) == sorted(expected)
    flags: list[int] = []
    unknown = 0
    for step, rows in expected.items():
        batch = run.spans(0, step)
        assert batch.num_rows == len(rows)
        assert sorted(map(key, batch.to_pylist())) == sorted(map(key, rows))
        order = list(zip(batch["block"].to_pylist(), batch["begin"].to_pylist(), strict=True))
        assert order == sorted(order)
        flags += [row["flag"] for row in rows]
        unknown += sum(row["job"] >= 0x8000 for row in rows)
    names = {"no_end": 1, "no_begin": 2, "reversed": 3, "stale": 4, "outside": 5}
    assert {name: run.losses[name] for name in names} == {n: flags.count(f) for n, f in names.items()}
    assert run.losses["unknown_job"] == unknown
    fresh = [(launch.epochs == launch.epoch, launch.overflow) for launch in launches]
    assert run.losses["overflow_stamps"] == sum(int(overflow[ok].sum()) for ok, overflow in fresh)


def key(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in COLUMNS)


def test_the_tables_of_a_small_run(tmp_path: Path) -> None:
    run = open_run(build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2))
    assert (run.verdict, run.ranks, run.blocks, run.step_ids(0), run.step_ids(1)) == (
        "complete",
        (0, 1),
        2,
        [0, 2],
        [0],
    )
    assert [tuple(row.values()) for row in run.spans(0, 0).to_pylist()] == [
        (0, 100, 0, 0, -1, 0, 0, 0, 0),
        (20, 80, 1, 0, -1, 0, 0, 1, 0),
        (1000, 10, 2, 1, 0, 0, 0, 1, 0),
        (1005, 0, 2, 1, 0, 1, 1, 1, 1),
    ]
    assert run.steps(0).to_pylist() == [
        {
            "step": 0,
            "base_ns": 1000,
            "end_ns": 2010,
            "launches": 2,
            "spans": 4,
            "host_begin_ns": 1000,
            "host_end_ns": 2010,
            "tokens": 16,
            "output": "",
        },
        {
            "step": 2,
            "base_ns": 9000,
            "end_ns": 9007,
            "launches": 1,
            "spans": 1,
            "host_begin_ns": 9000,
            "host_end_ns": 9007,
            "tokens": 16,
            "output": "",
        },
    ]
    assert run.launches(0).slice(1, 1).to_pylist() == [
        {
            "step": 0,
            "launch": 1,
            "layer": 0,
            "kind": "sliding",
            "epoch": 2,
            "begin_ns": 2000,
            "end_ns": 2010,
            "blocks": 2,
            "stale_blocks": 0,
            "spans": 2,
            "submit_ns": 2000,
            "done_ns": 2010,
        }
    ]
    assert run.losses["no_end"] == 1


def test_an_index_opens_with_plain_pyarrow(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    index_run(folder)
    table = pa.ipc.open_file(pa.OSFile(str(folder / "spans" / "rank-0000.arrow"))).read_all()
    assert table.column("dur").to_pylist() == [100, 80, 10, 0, 7]
    assert [str(field.type) for field in table.schema][:3] == ["uint32", "uint32", "uint16"]


def test_the_same_journals_give_the_same_bytes(tmp_path: Path) -> None:
    first = build_run_from_text(tmp_path / "a", SMALL_RUN_TEXT, small_table(), blocks=2)
    second = tmp_path / "b"
    shutil.copytree(first, second)
    index_run(first)
    index_run(second)
    index_run(second)
    names = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(second) for path in second.rglob("*") if path.is_file())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_a_step_beyond_4_29_s_gets_u64_columns(tmp_path: Path) -> None:
    text = f"""
    r0 s0 l0 layer=0 sliding b0 w1 norm 1000 2000
    r0 s1 l0 layer=0 sliding b0 w1 norm {T0} {T0 + 10}
    r0 s1 l1 layer=0 sliding b0 w1 norm {T0 + 2**32} {T0 + 2**32 + 7}
    """
    run = open_run(build_run_from_text(tmp_path / "r", text, small_table(), blocks=1))
    assert run.verdict == "complete"
    assert run.spans(0, 0).schema.field("begin").type == pa.uint64()
    assert run.spans(0, 1)["begin"].to_pylist() == [0, 2**32]
    assert run.spans(0, 1)["dur"].to_pylist() == [10, 7]
    assert run.spans(0, 1)["flag"].to_pylist() == [0, 0]


def test_a_step_one_ns_too_long_for_u32_is_exact_too(tmp_path: Path) -> None:
    text = f"r0 s0 l0 layer=0 sliding b0 w1 norm {T0} {T0 + 2**32}"
    run = open_run(build_run_from_text(tmp_path / "r", text, small_table(), blocks=1))
    assert run.spans(0, 0)["dur"].to_pylist() == [2**32]


def test_a_step_of_exactly_4_29_s_fits_u32(tmp_path: Path) -> None:
    text = f"r0 s0 l0 layer=0 sliding b0 w1 norm {T0} {T0 + 2**32 - 1}"
    run = open_run(build_run_from_text(tmp_path / "r", text, small_table(), blocks=1))
    assert run.spans(0, 0).schema.field("dur").type == pa.uint32()
    assert run.spans(0, 0)["dur"].to_pylist() == [2**32 - 1]


def test_unbelievable_times_never_stretch_the_axis(tmp_path: Path) -> None:
    slots = np.zeros((2, 16), dtype=np.uint64)
    slots[0, :4] = (T0, T0 + 50, T0 + 10, 2**64 - 1)
    slots[1, :4] = (1, 0, T0 + 20, T0 + 30)
    headers = np.array([T0, T0 + 1], dtype=np.uint64)
    launch = LaunchStamps(0, 0, slots, headers, submit_ns=T0 - 5, done_ns=T0 + 60)
    run = open_run(build_run(tmp_path / "r", {0: [launch]}, small_table(), 2))
    step = run.steps(0).to_pylist()[0]
    assert (step["base_ns"], step["end_ns"]) == (T0, T0 + 50)
    assert run.losses["outside"] == 2
    assert [(row["begin"], row["dur"], row["flag"]) for row in run.spans(0, 0).to_pylist()] == [
        (0, 50, 0),
        (10, 0, 5),
        (0, 0, 5),
        (20, 10, 0),
    ]


def test_without_its_meta_chunk_jobs_are_numbers(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    path = folder / "rank-0000.mtj"
    data = path.read_bytes()
    length = 24 + int.from_bytes(data[44:52], "little")
    path.write_bytes(data[:36] + data[36 + length :])
    (folder / "rank-0001.mtj").unlink()
    run = open_run(folder)
    assert run.verdict == "damaged"
    assert run.job_table.job_name(0x8001) == "job#32769"
    assert run.spans(0, 0)["job"].to_pylist() == [0x8000, 0x8001, 0x8002, 0x8002]
    assert run.losses["unknown_job"] == 5
    assert run.losses["damaged_chunks"] == 1


def test_a_job_table_that_is_not_sound_is_damage_and_jobs_are_numbers(tmp_path: Path) -> None:
    table = small_table()
    for number, change in enumerate(
        ({"slots": 14}, {"job_of_pair": [99] * 8}, {"warp_of_pair": [0]}, {"jobs": "no"}, {"jobs": [{}]})
    ):
        broken = {**table.to_json(), **change}
        builder = JournalBuilder(tmp_path / str(number), table, blocks=1, meta={"job_table": broken})
        builder.launch(launch_at(0, 0))
        builder.step(0)
        builder.end()
        run = open_run(tmp_path / str(number))
        assert run.verdict == "damaged"
        assert "job table" in run.notes[0]
        assert run.spans(0, 0)["job"].to_pylist() == [0x8000]


def test_launches_of_a_step_may_come_in_any_order_but_only_once(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path, small_table(), blocks=1)
    for launch in (2, 0, 1):
        builder.launch(launch_at(0, launch))
    builder.step(0)
    builder.end()
    run = open_run(tmp_path)
    assert run.verdict == "complete"
    assert run.launches(0)["launch"].to_pylist() == [0, 1, 2]
    assert run.spans(0, 0)["launch"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("order", [((0, 0), (0, 0)), ((1, 0), (0, 0))])
def test_a_launch_twice_or_after_a_later_step_is_damage(tmp_path: Path, order: Any) -> None:
    builder = JournalBuilder(tmp_path, small_table(), blocks=1)
    for step, launch in order:
        builder.launch(launch_at(step, launch))
    builder.end()
    run = open_run(tmp_path)
    assert (run.verdict, run.losses["damaged_chunks"]) == ("damaged", 1)
    assert run.launches(0).num_rows == 1


def test_spans_that_begin_together_stay_in_the_order_of_launch_and_slot(tmp_path: Path) -> None:
    launches = []
    for launch in range(20):
        slots = np.zeros((3, 16), dtype=np.uint64)
        slots[:, 0::2], slots[:, 1::2] = T0, T0 + 5
        launches.append(LaunchStamps(0, launch, slots, np.full(3, T0, dtype=np.uint64), epoch=launch + 1))
    run = open_run(build_run(tmp_path / "r", {0: launches}, small_table(), 3))
    rows = [(row["block"], row["launch"], row["job"] & 0x7FFF) for row in run.spans(0, 0).to_pylist()]
    assert rows == [(block, launch, pair) for block in range(3) for launch in range(20) for pair in range(8)]


@pytest.mark.parametrize("slot_bytes", [4, 8])
def test_ties_within_a_tick_are_sound_spans_in_the_order_of_their_slots(
    tmp_path: Path, slot_bytes: int
) -> None:
    # One warp: a wait of no length, then work that begins in the same tick; another block has them reversed.
    text = f"""
    r0 s0 l0 layer=0 sliding b0 w1 norm      {T0} {T0 + 32}
    r0 s0 l0 layer=0 sliding b0 w1 gemm_wait {T0} {T0}
    r0 s0 l0 layer=0 sliding b1 w1 gemm_wait {T0} {T0 + 32}
    r0 s0 l0 layer=0 sliding b1 w1 norm      {T0} {T0}
    """
    run = open_run(build_run_from_text(tmp_path / "r", text, small_table(), blocks=2, slot_bytes=slot_bytes))
    rows = [
        tuple(row[name] for name in ("block", "job", "begin", "dur", "flag"))
        for row in run.spans(0, 0).to_pylist()
    ]
    assert rows == [(0, 1, 0, 0, 0), (0, 2, 0, 32, 0), (1, 1, 0, 32, 0), (1, 2, 0, 0, 0)]
    assert {count for count in run.losses.values() if isinstance(count, int)} == {0}


def test_a_step_with_nothing_but_losses_is_there(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path, small_table(), blocks=1)
    builder.loss(0, 0, 2)
    builder.step(0, 5, 6, 3)
    builder.launch(launch_at(1, 1))
    builder.loss(1, 0, 1, "recording_failed")
    builder.end()
    run = open_run(tmp_path)
    assert run.verdict == "complete"
    assert run.losses["lost_launches"] == 3
    assert run.steps(0)["launches"].to_pylist() == [0, 1]
    assert run.steps(0)["tokens"].to_pylist() == [3, 0]
    assert run.spans(0, 0).num_rows == 0


def test_reports_and_both_clock_anchors_reach_the_manifest(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path, small_table(), blocks=1, anchor_ns=T0)
    builder.json(ChunkType.REPORT, {"site": 4, "want": 3, "got": 2})
    builder.clock(T0 + 77, T0 + 70)
    builder.end()
    manifest = open_run(tmp_path).manifest
    assert manifest["reports"] == [{"site": 4, "want": 3, "got": 2, "rank": 0}]
    assert [anchor["device_ns"] for anchor in manifest["ranks"][0]["anchors"]] == [T0, T0 + 77]


def test_memory_of_a_long_run_is_that_of_one_step(tmp_path: Path) -> None:
    table = wide_table(64)
    builder = JournalBuilder(tmp_path, table, blocks=4)
    slots = T0 + np.arange(4 * 64, dtype=np.uint64).reshape(4, 64)
    peaks = []
    for count in (20, 200):
        for step in range(len(peaks) * 20, count):
            header = np.full(4, T0, dtype=np.uint64)
            builder.launch(
                LaunchStamps(step, 0, slots + np.uint64(1000 * step), header, epoch=1, done_ns=T0 * 2)
            )
        before = pa.total_allocated_bytes()
        index_run(tmp_path)
        peaks.append(pa.total_allocated_bytes() - before)
    builder.end()
    assert max(peaks) < 1 << 20


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    index_run(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    assert (manifest["format"], manifest["world"], manifest["recording_id"]) == (
        "musetrace",
        2,
        bytes(range(16)).hex(),
    )
