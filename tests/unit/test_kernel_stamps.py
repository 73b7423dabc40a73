"""The public header in somebody else's kernel, played by host code: what it stamps, what it leaves alone."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import _core
from musetrace.abi import StampLayout
from musetrace.declare import NewJob, Role, cuda_source
from musetrace.errors import UsageError
from musetrace.job_table import JOB_KINDS, JobTable
from musetrace.store.decode import Flag, LaunchSpans, PairMap, decode_launch
from musetrace.store.payloads import Launch
from musetrace.store.stamp_batch import StampBatch

SLOT_BYTES = {"store": 8, "register": 4}
BLOCKS, EPOCH, NO_JOB = 3, 41, 0xFFFF
CANARY = 0xA5
STAMPING = ((0, "tile_load"), (1, "tile_wait"), (1, "tile_compute"), (3, "tile_wait"), (3, "tile_compute"))


class Region:
    """A region with canaries in front of it and behind it, filled in as the recorder does."""

    def __init__(self, table: JobTable, mode: str, blocks: int = BLOCKS) -> None:
        self.layout = StampLayout(blocks, table.slots, SLOT_BYTES[mode])
        size = self.layout.region_bytes
        self._all = np.full(size + 512, CANARY, dtype=np.uint8)
        begin = 128 + -(self._all.ctypes.data) % 128
        self.memory = self._all[begin : begin + size]
        self.memory[:] = 0
        self.header = self.layout.region_header(self.memory)
        for name, value in (
            ("blocks", blocks),
            ("slots", table.slots),
            ("slot_bytes", SLOT_BYTES[mode]),
            ("epoch", EPOCH),
        ):
            self.header[name] = value

    def neighbours_are_intact(self) -> bool:
        outside = len(self._all) - len(self.memory)
        return int((self._all == CANARY).sum()) - int((self.memory == CANARY).sum()) == outside

    def decoded(self, table: JobTable) -> LaunchSpans:
        headers, slots = self.layout.headers(self.memory), self.layout.stamps(self.memory)
        names = ("epoch", "sm", "overflow", "time_ns")
        columns: dict[str, Any] = {name: np.ascontiguousarray(headers[name]) for name in names}
        launch = Launch(0, 0, 0, "gemm", EPOCH, 0, 0)
        batch = StampBatch(launch, np.arange(len(headers), dtype=np.uint16), slots=slots, **columns)
        return decode_launch(batch, PairMap(table, table.slots // 2), None)


def run(
    libraries: dict[str, ctypes.CDLL],
    mode: str,
    region: Region | None,
    blocks: int = BLOCKS,
    tiles: int = 3,
    extra_job: int = NO_JOB,
) -> None:
    pointer = None if region is None else ctypes.c_void_p(region.memory.ctypes.data)
    libraries[mode].run_gemm(pointer, *(ctypes.c_uint32(value) for value in (blocks, tiles, extra_job)))


def table_of(libraries: dict[str, ctypes.CDLL]) -> JobTable:
    return JobTable.from_library(libraries["store"], "GemmJobs")


def rows(table: JobTable, decoded: LaunchSpans) -> set[tuple[int, str, int, int, int | None]]:
    """(block, job, warp, iteration, payload) of each span."""
    spans = decoded.spans
    return {
        (
            int(spans.block[at]),
            table.job_name(int(spans.job[at])),
            int(spans.warp[at]),
            int(spans.iteration[at]),
            int(spans.payload[at]) if spans.has_payload[at] else None,
        )
        for at in range(len(spans))
    }


def expected_rows(tiles: int) -> set[tuple[int, str, int, int, int | None]]:
    found: set[tuple[int, str, int, int, int | None]] = set()
    for block in range(BLOCKS):
        for warp, job in STAMPING:
            for tile in range(min(tiles, 3)):
                found.add((block, job, warp, tile, 1000 + tile if job == "tile_compute" else None))
        found |= {(block, "released", warp, 0, None) for warp in (1, 3)}
        found |= {(block, "trace", 5, span, None) for span in range(min(13 * tiles, 60))}
        if tiles <= 2:
            found.add((block, "tile_life", 255, tiles - 1, None))
    return found


@pytest.mark.parametrize("mode", SLOT_BYTES)
@pytest.mark.parametrize("tiles", [1, 2])
def test_each_instance_of_each_job_has_its_span(
    libraries: dict[str, ctypes.CDLL], mode: str, tiles: int
) -> None:
    table = table_of(libraries)
    region = Region(table, mode)
    run(libraries, mode, region, tiles=tiles)
    decoded = region.decoded(table)
    assert rows(table, decoded) == expected_rows(tiles)
    assert len(decoded.spans) == len(expected_rows(tiles))
    assert decoded.spans.flag.tolist() == [Flag.OK] * len(decoded.spans)
    assert decoded.overflow == 0
    assert (decoded.blocks, decoded.stale_blocks) == (BLOCKS, 0)
    assert region.header["launches"].tolist() == [1]
    assert region.header["dropped_blocks"].tolist() == region.header["mismatch"].tolist() == [0]
    assert region.neighbours_are_intact()


@pytest.mark.parametrize("mode", SLOT_BYTES)
def test_an_iteration_that_has_no_slot_is_counted_and_touches_nothing(
    libraries: dict[str, ctypes.CDLL], mode: str
) -> None:
    table = table_of(libraries)
    region = Region(table, mode)
    run(libraries, mode, region, tiles=5)
    decoded = region.decoded(table)
    assert rows(table, decoded) == expected_rows(5)
    # Two tiles too many in five pairs of a warp and a job, five of the tracer's 65 spans, and the block's own
    # job in its fifth iteration.
    assert decoded.overflow == BLOCKS * (2 * len(STAMPING) + 5 + 1)
    assert region.neighbours_are_intact()


@pytest.mark.parametrize("mode", SLOT_BYTES)
@pytest.mark.parametrize(
    ("job", "stamped"),
    [(1, True), (2, True), (0, False), (4, False), (6, False), (0xFFFE, False), (1 << 31, False)],
)
def test_a_job_that_is_known_at_run_time_only_is_checked(
    libraries: dict[str, ctypes.CDLL], mode: str, job: int, stamped: bool
) -> None:
    """Jobs 1 and 2 are the consumer's; the others are of another role, of the block, or do not exist."""
    table = table_of(libraries)
    region = Region(table, mode)
    run(libraries, mode, region, tiles=2, extra_job=job)
    decoded = region.decoded(table)
    extra = (
        {(b, table.job_name(job), w, 2, None) for b in range(BLOCKS) for w in (1, 3)} if stamped else set()
    )
    assert rows(table, decoded) == expected_rows(2) | extra
    assert decoded.overflow == (0 if stamped else 2 * BLOCKS)
    assert region.neighbours_are_intact()


@pytest.mark.parametrize("mode", SLOT_BYTES)
def test_blocks_beyond_the_grid_that_was_told_are_counted_and_stamp_nothing(
    libraries: dict[str, ctypes.CDLL], mode: str
) -> None:
    table = table_of(libraries)
    region = Region(table, mode)
    run(libraries, mode, region, blocks=BLOCKS + 4, tiles=2)
    assert rows(table, region.decoded(table)) == expected_rows(2)
    assert region.header["dropped_blocks"].tolist() == [4]
    assert region.neighbours_are_intact()


@pytest.mark.parametrize(("built", "told"), [("store", "register"), ("register", "store")])
def test_a_region_for_another_build_is_left_alone(
    libraries: dict[str, ctypes.CDLL], built: str, told: str
) -> None:
    table = table_of(libraries)
    region = Region(table, told)
    run(libraries, built, region)
    assert region.header["mismatch"].tolist() == [SLOT_BYTES[built] << 24 | table.slots]
    assert not region.memory[128:].any()
    assert region.neighbours_are_intact()


@pytest.mark.parametrize("mode", ["off", *SLOT_BYTES])
def test_without_a_region_a_kernel_runs(libraries: dict[str, ctypes.CDLL], mode: str) -> None:
    run(libraries, mode, None)


def test_the_off_build_stamps_nothing(libraries: dict[str, ctypes.CDLL]) -> None:
    region = Region(table_of(libraries), "store")
    before = region.memory.copy()
    run(libraries, "off", region)
    assert np.array_equal(region.memory, before)


@pytest.mark.parametrize("mode", SLOT_BYTES)
def test_a_clock_read_is_never_taken_for_an_empty_slot(libraries: dict[str, ctypes.CDLL], mode: str) -> None:
    table = table_of(libraries)
    region = Region(table, mode)
    run(libraries, mode, region, tiles=2)
    begins = region.layout.stamps(region.memory)[:, 0::2]
    assert int((begins != 0).sum()) >= BLOCKS * len(STAMPING)


GEMM_ROLES = [
    Role("producer", 0, 0),
    Role("consumer", 1, 4, stamped_by=(1, 3)),
    Role("tracer", 5, 5),
    Role("tiles", 0, 5, owner="block"),
]
GEMM_JOBS = [
    NewJob("tile_load", "tile", "load", "producer", iterations=3),
    NewJob("tile_wait", "tile", "wait", "consumer", awaits="tile_load", iterations=3, scope="block"),
    NewJob("tile_compute", "tile", "compute", "consumer", iterations=3, payload=True),
    NewJob("released", "tile", "sync", "consumer", instant=True),
    NewJob("trace", "path", "compute", "tracer", iterations=60),
    NewJob("tile_life", "tile", "compute", "tiles", iterations=2),
]


def test_python_and_cpp_declare_the_same_table(libraries: dict[str, ctypes.CDLL]) -> None:
    assert JobTable.declare("gemm", 6, GEMM_ROLES, GEMM_JOBS) == table_of(libraries)


def test_a_table_written_as_cpp_is_the_table(repository: Path, tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    source = cuda_source("Mine", 'a "quoted" name', 6, GEMM_ROLES, GEMM_JOBS)
    program = '#include "musetrace/stamp.cuh"\n#include "musetrace/abi/job_table_json.h"\n#include <cstdio>\n'
    program += source + "int main() { std::puts(musetrace::abi::job_table_json<Mine>().c_str()); }\n"
    (tmp_path / "table.cpp").write_text(program)
    command = [compiler, "-std=c++17", "-I", repository / "csrc/include", tmp_path / "table.cpp"]
    subprocess.run([*command, "-o", tmp_path / "table"], check=True, timeout=60)
    printed = subprocess.run([tmp_path / "table"], check=True, capture_output=True, text=True, timeout=10)
    declared = JobTable.declare('a "quoted" name', 6, GEMM_ROLES, GEMM_JOBS)
    assert JobTable.from_json(json.loads(printed.stdout)) == declared


@st.composite
def declarations(draw: st.DrawFn) -> tuple[int, list[Role], list[NewJob]]:
    warps = draw(st.integers(1, 12))
    roles = [Role("all", 0, warps - 1, owner="block")]
    for warp in range(warps):
        roles += [Role(f"r{warp}", warp, warp)] * draw(st.integers(0, 1))
    jobs = [
        NewJob(
            f"j{number}",
            "op",
            draw(st.sampled_from([kind for kind in JOB_KINDS if kind != "wait"])),
            draw(st.sampled_from(roles)).name,
            iterations=draw(st.integers(1, 40)),
            instant=draw(st.booleans()),
            payload=draw(st.booleans()),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return warps, roles, jobs


@settings(max_examples=60, deadline=None)
@given(declarations())
def test_every_instance_has_a_pair_of_its_own(declared: tuple[int, list[Role], list[NewJob]]) -> None:
    """Against a list written down warp by warp: jobs in order, iterations, a payload behind its span."""
    warps, roles, jobs = declared
    table = JobTable.declare("any", *declared)
    by_name = {role.name: role for role in roles}
    pairs: list[tuple[int, int, int, bool]] = []
    for warp in [*range(warps), -1]:
        run_of_warp = []
        for number, job in enumerate(jobs):
            role = by_name[job.role]
            if (warp == -1) != (role.owner == "block") or (warp >= 0 and warp not in role.stampers):
                continue
            for iteration in range(job.iterations):
                run_of_warp += [
                    (number, warp, iteration, is_payload) for is_payload in (False, True)[: 1 + job.payload]
                ]
        pairs += run_of_warp + [(-1, -1, 0, False)] * (-len(run_of_warp) % 16)
    lists = (table.job_of_pair, table.warp_of_pair, table.iteration_of_pair, table.payload_of_pair)
    assert list(zip(*lists, strict=True)) == pairs
    assert table.slots == 2 * len(pairs)


ONE = [Role("one", 0, 3)]


@pytest.mark.parametrize(
    ("warps", "roles", "jobs", "complaint"),
    [
        (0, ONE, [NewJob("a", "op", "load", "one")], "a block has 1 to 32 warps, not 0"),
        (
            4,
            [Role("one", 2, 4)],
            [NewJob("a", "op", "load", "one")],
            "role one has warps 2 to 4 of a block of 4",
        ),
        (4, [Role("one", 0, 1, stamped_by=(3,))], [NewJob("a", "op", "load", "one")], "stamped by warp 3"),
        (4, [*ONE, Role("two", 0, 0)], [NewJob("a", "op", "load", "one")], "a warp stamps in two roles"),
        (4, [*ONE, *ONE], [NewJob("a", "op", "load", "one")], "two roles one"),
        (4, ONE, [], "needs a job"),
        (4, ONE, [NewJob("a", "op", "lode", "one")], "kind 'lode'"),
        (4, ONE, [NewJob("a b", "op", "load", "one")], "'a b' is not a name"),
        (4, ONE, [NewJob("a", "op", "load", "two")], "role 'two', which there is not"),
        (4, ONE, [NewJob("a", "op", "wait", "one")], "names the job that it awaits"),
        (4, ONE, [NewJob("a", "op", "wait", "one", awaits="b")], "awaits 'b', which there is not"),
        (4, ONE, [NewJob("a", "op", "load", "one", scope="rank")], "scope 'rank'; a wait, and nothing else"),
        (4, ONE, [NewJob("a", "op", "wait", "one", awaits="a", scope="all")], "block, rank or ranks"),
        (4, ONE, [NewJob("a", "op", "load", "one", iterations=0)], "0 iterations"),
        (4, ONE, [NewJob("a", "op", "load", "one", iterations=40_000)], "more than 65,534 slots"),
    ],
)
def test_a_table_that_cannot_be_is_refused_in_one_line(
    warps: int, roles: list[Role], jobs: list[NewJob], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        JobTable.declare("bad", warps, roles, jobs)
    assert "\n" not in str(refused.value)


def test_a_library_without_the_table_is_refused_in_one_line(
    libraries: dict[str, ctypes.CDLL], tmp_path: Path
) -> None:
    for library in (libraries["store"], tmp_path / "none.so"):
        with pytest.raises(UsageError, match=r"MUSETRACE_EXPORT_JOB_TABLE\(Other\)") as refused:
            JobTable.from_library(library, "Other")
        assert "\n" not in str(refused.value)


@given(st.integers(1, 4), st.data())
def test_payloads_are_those_of_their_spans(blocks: int, data: st.DataObject) -> None:
    """A region written by hand, pair by pair, decoded and compared with what was written."""
    jobs = [NewJob("a", "op", "compute", "one", iterations=4, payload=True), NewJob("b", "op", "load", "one")]
    table = JobTable.declare("payloads", 4, ONE, jobs)
    slots: npt.NDArray[np.uint64] = np.zeros((blocks, table.slots), dtype=np.uint64)
    written: dict[tuple[int, int], tuple[int, int | None]] = {}
    for block in range(blocks):
        for iteration in range(4):
            flag = data.draw(st.sampled_from([None, Flag.OK, Flag.NO_END, Flag.NO_BEGIN]))
            payload = data.draw(st.none() | st.integers(0, (1 << 32) - 1))
            at = 4 * iteration
            if flag in (Flag.OK, Flag.NO_END):
                slots[block, at] = 1_000_000
            if flag in (Flag.OK, Flag.NO_BEGIN):
                slots[block, at + 1] = 1_000_500
            if payload is not None:
                slots[block, at + 2 : at + 4] = payload, 1
            if flag is not None or payload is not None:
                written[block, iteration] = (Flag.NO_BEGIN if flag is None else flag, payload)
    ones = np.ones(blocks, dtype=np.uint32)
    batch = StampBatch(
        Launch(0, 0, 0, "any", 1, 0, 0),
        np.arange(blocks, dtype=np.uint16),
        ones,
        ones,
        ones * 0,
        np.full(blocks, 1_000_000, dtype=np.uint64),
        slots,
    )
    spans = decode_launch(batch, PairMap(table, table.slots // 2), None).spans
    found = {
        (int(spans.block[at]), int(spans.iteration[at])): (
            int(spans.flag[at]),
            int(spans.payload[at]) if spans.has_payload[at] else None,
        )
        for at in range(len(spans))
    }
    assert found == written


def test_region_shape_is_the_number_that_a_kernel_leaves() -> None:
    assert _core.abi.region_shape(96, 8) == 8 << 24 | 96
