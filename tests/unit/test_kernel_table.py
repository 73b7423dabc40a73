"""Job tables of several kernels in one run: what is read and refused, and that each keeps its own spans."""

from __future__ import annotations

import ctypes
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace import NewJob, Role
from musetrace.errors import RecordError
from musetrace.job_table import JobTable
from musetrace.record.kernel_table import KernelTable, combined_table, job_table_of
from musetrace.store import open_run
from musetrace.store.decode import PairMap, decode_launch
from musetrace.store.payloads import Launch, parse_job_table
from musetrace.store.stamp_batch import StampBatch
from tests.builders import JournalBuilder, LaunchStamps, small_table, wide_table

T0, EPOCH = 1_000_000, 7


def declared(jobs: list[tuple[str, int, bool, bool]], warps: int = 3) -> JobTable:
    """Jobs (name, iterations, instant, payload) of warps 0 and 1, the last job of the block."""
    roles = [Role("both", 0, 1, stamped_by=(0, 1)), Role("block", 0, warps - 1, owner="block")]
    rows = [
        NewJob(name, f"op_{name}", "compute", "both", iterations=count, instant=instant, payload=payload)
        for name, count, instant, payload in jobs
    ]
    return JobTable.declare("table", warps, roles, [*rows, NewJob("life", "life", "sync", "block")])


NAMES = st.sampled_from(["load", "wait", "math", "store"])
JOBS = st.lists(
    st.tuples(NAMES, st.integers(1, 4), st.booleans(), st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda job: job[0],
)
TABLES = st.one_of(JOBS.map(declared), st.sampled_from([small_table(), wide_table(32, 4)]))
KERNELS = st.lists(st.tuples(TABLES, st.integers(1, 3)), min_size=1, max_size=4)


@given(KERNELS, st.data())
def test_each_kernel_keeps_its_own_spans(kernels: list[tuple[JobTable, int]], data: st.DataObject) -> None:
    run = [KernelTable(f"k{n}", blocks, table) for n, (table, blocks) in enumerate(kernels)]
    whole = JobTable.from_json(json.loads(json.dumps(combined_table(run).to_json())))
    assert parse_job_table(whole.to_json(), whole.slots) == whole
    for number, kernel in enumerate(run):
        written = data.draw(st.lists(st.booleans(), min_size=kernel.table.slots // 2 * kernel.blocks))
        slots = stamped(kernel, written)
        part = PairMap(whole, kernel.table.slots // 2, number)
        found = decode_launch(batch(slots, number), part, None)
        assert len(found.spans) == len(expected(kernel, slots))
        got = [
            (
                whole.jobs[int(found.spans.job[at])],
                int(found.spans.job[at]),
                int(found.spans.block[at]),
                int(found.spans.warp[at]),
                int(found.spans.iteration[at]),
                int(found.spans.begin[at]),
                int(found.spans.dur[at]),
                int(found.spans.payload[at]) if found.spans.has_payload[at] else None,
            )
            for at in range(len(found.spans))
            if found.spans.job[at] < 1 << 15
        ]
        want = expected(kernel, slots)
        assert [(job.op, *rest) for job, _, *rest in got] == [row for row in want if row[0] is not None]
        first = sum(len(other.table.jobs) for other in run[:number])
        for job, job_id, *_ in got:
            own = kernel.table.jobs[job_id - first]
            clash = sum(own.name in {other.name for other in one.table.jobs} for one in run) > 1
            assert job.name == (f"{kernel.name}.{own.name}" if clash else own.name)


def stamped(kernel: KernelTable, written: list[bool]) -> np.ndarray[Any, Any]:
    """u64[blocks, slots] of a launch: an instance that is written has begin and end, and its payload."""
    pairs = kernel.table.slots // 2
    payloads = kernel.table.payload_of_pair or (False,) * pairs
    slots = np.zeros((kernel.blocks, pairs, 2), dtype=np.uint64)
    for block in range(kernel.blocks):
        for pair in range(pairs):
            if payloads[pair]:
                if slots[block, pair - 1, 0]:
                    slots[block, pair] = (500 + pair, 1)
            elif written[block * pairs + pair]:
                job = kernel.table.job_of_pair[pair]
                begin = T0 + 1000 * block + 10 * pair
                instant = job >= 0 and kernel.table.jobs[job].instant
                slots[block, pair] = (begin, 0 if instant else begin + pair + 1)
    return slots.reshape(kernel.blocks, 2 * pairs)


def expected(kernel: KernelTable, slots: np.ndarray[Any, Any]) -> list[tuple[Any, ...]]:
    """(op, block, warp, iteration, begin, duration, payload) in plain Python; op None where no job is."""
    rows: list[tuple[Any, ...]] = []
    table = kernel.table
    for block in range(kernel.blocks):
        values = [int(value) for value in slots[block]]
        for pair in range(table.slots // 2):
            begin, end = values[2 * pair], values[2 * pair + 1]
            if (table.payload_of_pair and table.payload_of_pair[pair]) or not begin:
                continue
            job, warp = table.job_of_pair[pair], table.warp_of_pair[pair]
            behind = pair + 1
            carries = bool(table.payload_of_pair) and behind < len(table.payload_of_pair)
            carries = carries and table.payload_of_pair[behind]
            rows.append(
                (
                    table.jobs[job].op if job >= 0 else None,
                    block,
                    warp if warp >= 0 else 255,
                    table.iteration_of_pair[pair] if table.iteration_of_pair else 0,
                    begin,
                    end - begin if end else 0,
                    values[2 * behind] if carries else None,
                )
            )
    return rows


def batch(slots: np.ndarray[Any, Any], kernel: int) -> StampBatch:
    blocks = len(slots)
    return StampBatch(
        Launch(0, 0, 0, "kernel", EPOCH, 0, 0, kernel=kernel),
        np.arange(blocks, dtype=np.uint16),
        epoch=np.full(blocks, EPOCH, dtype=np.uint32),
        sm=np.arange(blocks, dtype=np.uint32),
        overflow=np.zeros(blocks, dtype=np.uint32),
        time_ns=np.full(blocks, T0, dtype=np.uint64),
        slots=slots,
    )


def test_slots_beyond_a_kernel_are_not_the_next_kernels() -> None:
    run = [KernelTable("a", 1, small_table()), KernelTable("b", 1, small_table())]
    whole = combined_table(run)
    pairs = PairMap(whole, 12, 0)
    assert pairs.job.tolist() == [0, 1, 2, *range(0x8003, 0x8000 + 12)]
    assert PairMap(whole, 8, 1).job.tolist() == [3, 4, 5, *range(0x8000 + 11, 0x8000 + 16)]
    # Kernels that there are not, and numbers that do not fit, name no job.
    for kernel in (2, -1):
        assert PairMap(whole, 8, kernel).job.tolist() == list(range(0x8000, 0x8008))
    assert PairMap(whole, 1 << 15, 1).job.max() == 0xFFFF
    assert PairMap(small_table(), 8, 1).job.tolist() == list(range(0x8000, 0x8008))


def test_waits_still_name_what_they_wait_for() -> None:
    run = [KernelTable("a", 1, small_table()), KernelTable("b", 5, small_table())]
    whole = combined_table(run)
    assert [job.awaits for job in whole.jobs] == [None, 0, None, None, 3, None]
    assert [job.name for job in whole.jobs[:3]] == ["a.gemm_load", "a.gemm_wait", "a.norm"]
    assert Counter(job.op for job in whole.jobs) == {"gemm": 4, "norm": 2}
    assert [(one.name, one.blocks, one.slots, one.first_pair) for one in whole.kernels] == [
        ("a", 1, 16, 0),
        ("b", 5, 16, 8),
    ]
    assert (whole.blocks_of("b", 9), whole.blocks_of("c", 9)) == (5, 9)


def test_the_table_of_one_kernel_is_its_own() -> None:
    table = declared([("load", 2, False, True)])
    whole = combined_table([KernelTable("k", 4, table)])
    assert whole.part(0) == JobTable.from_json({**table.to_json()})
    assert small_table().part(0) == small_table()
    assert "kernels" not in small_table().to_json()


def test_a_table_is_taken_in_every_form(libraries: dict[str, ctypes.CDLL]) -> None:
    table = small_table()
    as_json = json.dumps(table.to_json())
    for form in (table, table.to_json(), as_json, as_json.encode()):
        assert job_table_of(form) == table
    exported = libraries["store"].musetrace_job_table_GemmJobs
    assert job_table_of(exported) == JobTable.from_library(libraries["store"], "GemmJobs")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "takes a JobTable, its JSON, or the export of a library .*, not None"),
        ("gemm", "not 'gemm'"),
        (b"\xff", "takes a JobTable"),
        (7, "not 7"),
        ("[]", "lacks something"),
        ({"name": "x"}, "lacks something: KeyError"),
        ({**small_table().to_json(), "slots": 3}, "small has 3 slots; a block has 2 to 65536"),
        ({**small_table().to_json(), "slots": 18}, "small is not sound"),
        ({**small_table().to_json(), "job_of_pair": [9] * 8}, "small is not sound"),
        (combined_table([KernelTable("k", 1, small_table())]), "small is not sound"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message) as refusal:
        job_table_of(given)
    assert "\n" not in str(refusal.value)


def test_more_slots_than_the_store_numbers_are_refused() -> None:
    kernels = [KernelTable(f"k{n}", 1, wide_table(1 << 15)) for n in range(3)]
    combined_table(kernels[:2])
    with pytest.raises(RecordError, match="98304 slots together; a run holds 65536"):
        combined_table(kernels)


@pytest.mark.parametrize(
    "kernel",
    [
        {"slots": 20},
        {"first_pair": 7},
        {"first_pair": -1},
        {"slots": -2},
        {"blocks": 1 << 16},
        {"name": "x" * 257},
    ],
)
def test_kernels_that_do_not_fit_their_table_make_it_unusable(kernel: dict[str, Any]) -> None:
    data = combined_table([KernelTable("k", 1, small_table())]).to_json()
    assert parse_job_table(data, 16) is not None
    data["kernels"][0] |= kernel
    assert parse_job_table(data, 16) is None


class OfKernel(LaunchStamps):
    """A launch that says which kernel it is of."""

    kernel = 0

    def info(self) -> dict[str, Any]:
        return {**super().info(), "kernel": self.kernel}


def test_a_journal_that_names_a_kernel_that_is_not_there_keeps_its_spans(tmp_path: Path) -> None:
    table = combined_table([KernelTable("a", 2, small_table()), KernelTable("b", 2, small_table())])
    builder = JournalBuilder(tmp_path / "run", table, blocks=2)
    for launch, kernel in enumerate((0, 1, 2, 9)):
        times = np.zeros((2, 32), dtype=np.uint64)
        times[:, :2] = (T0, T0 + 5)
        stamps = OfKernel(0, launch, times, np.full(2, T0, dtype=np.uint64))
        stamps.kernel = kernel
        builder.launch(stamps)
    builder.end()
    run = open_run(tmp_path / "run")
    assert run.verdict == "complete"
    jobs = {(row["launch"], row["job"]) for row in run.spans(0, 0).to_pylist()}
    assert jobs == {(0, 0), (1, 3), (2, 0x8000), (3, 0x8000)}
    assert run.losses["unknown_job"] == 4
