"""What `compare` says of two builds recorded on an H200, each number and sentence from the raw stamps.

`slice-gather` gathers the sums of stop 4 whole, `slice-sumsq` combines them as they come. Nothing of the
analysis is used for what is expected: stamps are read from the journals, medians are sorted lists.
"""

from __future__ import annotations

import itertools
import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from musetrace import analysis
from musetrace.analysis.comparing.compare import Comparison
from musetrace.cli.compare.as_text import page
from musetrace.cli.output import Screen
from musetrace.store import Run, open_run
from tests.golden.stamped_launches import WORK, Journal, Stamp, StampedLaunch, idle_by_cause, union_ns

RECORDINGS = Path(__file__).resolve().parents[2] / "samples" / "recordings"
RUNS = ("slice-sumsq", "slice-gather")
BLOCKS, STEPS, SPANS, TICK_NS = 132, 14, 393_904, 32
KINDS = ("entry", "sliding", "global", "head")
RESAMPLES = 2_000

Steps = list[int]  # a time of each step, ns
Name = TypeVar("Name")


@dataclass
class Raw:
    """Times of each step of a run, from its stamps; a block that does nothing of an op has 0 of it.

    ``launches`` by step and kind in their order, ``spans`` is the number of all, ``outputs`` the hash of each
    step's output.
    """

    outputs: dict[int, str]
    launches: list[tuple[int, str]] = field(default_factory=list)
    spans: int = 0
    times: dict[tuple[str, str], Steps] = field(default_factory=lambda: defaultdict(list))
    ops: dict[tuple[str, str, str], Steps] = field(default_factory=lambda: defaultdict(list))
    busy: dict[tuple[str, str], Steps] = field(default_factory=lambda: defaultdict(lambda: [0] * STEPS))
    idle: dict[tuple[str, str], Steps] = field(default_factory=lambda: defaultdict(lambda: [0] * STEPS))

    @classmethod
    def read(cls, name: str) -> Raw:
        """Each kind of launch is in a step once, so its number in a step is that of one launch."""
        journal = Journal.read(RECORDINGS / name / "rank-0000.mtj")
        raw = cls(journal.outputs)
        edges: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for launch in journal.launches():
            raw.launches.append((launch.step, launch.kind))
            raw.spans += sum(map(len, launch.blocks))
            edges[launch.step].append((launch.kind, launch.begin, launch.end))
            raw.times["launch", launch.kind].append(launch.length)
            raw._add_work(launch)
            raw._add_idle(launch, journal.jobs)
        for of_step in edges.values():
            raw.times["step", "device"].append(of_step[-1][2] - of_step[0][1])
            for (kind, _, end), (_, begin, _) in itertools.pairwise(of_step):
                raw.times["gap", kind].append(begin - end)
        return raw

    def _add_work(self, launch: StampedLaunch) -> None:
        lengths: dict[tuple[str, str], Steps] = defaultdict(list)
        busy: dict[str, int] = defaultdict(int)
        for spans in launch.blocks:
            for (op, kind), mine in grouped(spans, lambda span: (span.op, span.kind)).items():
                lengths[op, kind].append(max(one.end for one in mine) - min(one.begin for one in mine))
            working = [span for span in spans if span.kind in WORK]
            for op, mine in grouped(working, lambda span: span.op).items():
                busy[op] += union_ns(mine)
            busy["all"] += union_ns(working)
        for (op, kind), values in lengths.items():
            self.ops[launch.kind, op, kind].append(middle(values))
        self.times["busy", launch.kind].append(per_block(busy.pop("all")))
        for op, total in busy.items():
            self.busy[launch.kind, op][launch.step] = per_block(total)

    def _add_idle(self, launch: StampedLaunch, jobs: list[dict[str, Any]]) -> None:
        idle = idle_by_cause(launch, jobs, TICK_NS)
        self.times["idle", launch.kind].append(per_block(sum(idle.values())))
        for cause, total in idle.items():
            self.idle[launch.kind, cause][launch.step] = per_block(total)


def middle(values: list[int]) -> int:
    """The nearest-rank median."""
    return sorted(values)[(len(values) + 1) // 2 - 1]


def per_block(total: int) -> int:
    return math.floor(total / BLOCKS + 0.5)


def grouped(spans: list[Stamp], of: Callable[[Stamp], Name]) -> dict[Name, list[Stamp]]:
    found: dict[Name, list[Stamp]] = defaultdict(list)
    for span in spans:
        found[of(span)].append(span)
    return found


@pytest.fixture(scope="module")
def raw() -> tuple[Raw, Raw]:
    a, b = map(Raw.read, RUNS)
    return a, b


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("compare")
    a, b = (open_run(shutil.copytree(RECORDINGS / name, folder / name)) for name in RUNS)
    return a, b


@pytest.fixture(scope="module")
def compared(runs: tuple[Run, Run]) -> Comparison:
    return analysis.compare(*runs)


@pytest.fixture(scope="module")
def text(runs: tuple[Run, Run], compared: Comparison) -> str:
    """The page of the command."""
    return "\n".join(page(*runs, compared, None, Screen(120, unicode=True), every=False))


def bootstrap(a: Steps, b: Steps) -> tuple[float, float]:
    """The 95 % percentile interval of the difference of medians, both samples drawn again and again."""
    rng = np.random.default_rng(20_261_130)
    rank = (STEPS + 1) // 2 - 1
    drawn = [
        np.sort(rng.choice(np.array(values), (RESAMPLES, len(values))), axis=1)[:, rank] for values in (a, b)
    ]
    low, high = np.percentile(drawn[1] - drawn[0], (2.5, 97.5))
    return float(low), float(high)


def check(row: dict[str, Any], a: Steps, b: Steps) -> None:
    """One row of a table against its times in each step of both runs."""
    assert (row["steps_a"], row["steps_b"], row["launches_a"], row["launches_b"]) == (STEPS, STEPS, 1, 1)
    assert (row["a_ns"], row["b_ns"]) == (middle(a), middle(b)), row
    off, open_ns = middle(b) - middle(a), row["uncertainty_ns"]
    assert row["difference_ns"] == row["per_step_ns"] == off
    low, high = bootstrap(a, b)
    assert row["low_ns"] <= off <= row["high_ns"]
    if row["verdict"] in ("faster", "slower"):
        assert (low > 0, high < 0) == (row["verdict"] == "slower", row["verdict"] == "faster"), row
        assert abs(off) >= open_ns
    else:  # the interval of the table is the wider one of two, so it may say less
        assert row["low_ns"] <= 0 <= row["high_ns"] or abs(off) < open_ns
    if row["verdict"] == "same":
        band = max(0.01 * abs(middle(a)), open_ns) + 1
        assert -band <= low <= high <= band


def test_the_stamps_are_all_there(raw: tuple[Raw, Raw]) -> None:
    for of in raw:
        assert of.launches == [(step, kind) for step in range(STEPS) for kind in KINDS]
        assert of.spans == SPANS


def test_every_time_is_that_of_the_stamps(raw: tuple[Raw, Raw], compared: Comparison) -> None:
    rows = {(row["what"], row["of"]): row for row in compared.times.to_pylist()}
    assert rows.pop(("step", "host"))["verdict"] == "cannot tell"  # not of stamps
    assert rows.keys() == raw[0].times.keys() == raw[1].times.keys()
    for name, row in rows.items():
        check(row, *(of.times[name] for of in raw))


def test_every_op_is_that_of_the_stamps(raw: tuple[Raw, Raw], compared: Comparison) -> None:
    rows = {(row["launch"], row["op"], row["kind"]): row for row in compared.ops.to_pylist()}
    assert rows.keys() == raw[0].ops.keys() == raw[1].ops.keys()
    for name, row in rows.items():
        check(row, *(of.ops[name] for of in raw))
    assert Counter(row["verdict"] for row in rows.values()) == {
        "slower": 18,
        "faster": 3,
        "cannot tell": 51,
        "same": 16,
    }
    for name, shown in {
        ("sliding", "stop4", "wait"): (1.4, 7.6, "slower"),
        ("global", "stop4", "wait"): (1.2, 7.5, "slower"),
        ("global", "stop4", "compute"): (2.8, 0.6, "faster"),
    }.items():
        row = rows[name]
        assert (round(row["a_ns"] / 1000, 1), round(row["b_ns"] / 1000, 1), row["verdict"]) == shown


def test_what_a_block_does_in_a_launch_is_what_the_stamps_leave(
    raw: tuple[Raw, Raw], compared: Comparison
) -> None:
    busy = {(row["launch"], row["op"]): row for row in compared.busy.to_pylist()}
    idle = {(row["launch"], row["wait"] or row["cause"]): row for row in compared.idle.to_pylist()}
    assert busy.keys() == raw[0].busy.keys() == raw[1].busy.keys()
    assert idle.keys() == raw[0].idle.keys() | raw[1].idle.keys()
    for name, row in busy.items():
        check(row, *(of.busy[name] for of in raw))
    for name, row in idle.items():
        check(row, *(of.idle[name] for of in raw))
    for kind in KINDS:  # both together are the launch, within the rounding of two means
        for of in raw:
            whole = np.add(of.times["busy", kind], of.times["idle", kind])
            assert np.abs(whole - of.times["launch", kind]).max() <= 1


def grown(raw: tuple[Raw, Raw], kind: str, cause: str) -> str:
    a, b = (middle(of.idle[kind, cause]) for of in raw)
    return f"{(b - a) / 1000:.2f} us more in {cause.replace('tail', 'no work left')}"


def test_the_words_are_those_that_the_stamps_give(
    raw: tuple[Raw, Raw], compared: Comparison, text: str
) -> None:
    """Of all ops only stop 4 is busy for less, by more than the clock leaves open."""
    open_ns = {(row["launch"], row["op"]): row["uncertainty_ns"] for row in compared.busy.to_pylist()}
    said = " ".join(text.split())
    for kind, more, launch in (
        ("sliding", "qkv_wait_slices", "of the launch's length nothing is told"),
        ("global", "tail", "the launch is 5.92 us longer"),
    ):
        a, b = ({op: times for (of, op), times in run.busy.items() if of == kind} for run in raw)
        off = {op: middle(b[op]) - middle(a[op]) for op in a}
        less = [op for op in a if bootstrap(a[op], b[op])[1] < 0 and -off[op] >= open_ns[kind, op]]
        assert less == ["stop4"]
        saved = -off["stop4"] / 1000
        awaited = {"stop4_wait_ranks": " for gemm2_send", "qkv_wait_slices": " for qkv_compute"}
        into = ", ".join(
            grown(raw, kind, cause) + awaited.get(cause, "") for cause in ("stop4_wait_ranks", more)
        )
        sentence = f"{kind}: more than the {saved:.2f} us per block and launch that stop4 saved"
        assert f"{sentence} turned into waiting: {into}; {launch}" in said
    lengths = [middle(of.times["launch", "global"]) for of in raw]
    assert round((lengths[1] - lengths[0]) / 1000, 2) == 5.92


def test_outputs_differ_and_the_build_is_said_to(raw: tuple[Raw, Raw], text: str) -> None:
    a, b = (of.outputs for of in raw)
    assert a.keys() == b.keys() == set(range(STEPS))
    assert [step for step in a if a[step] == b[step]] == []
    assert "outputs  differ in 14 of 14 steps, first in step 0\n" in text
    assert "warning  build stop4: sumsq in A, gather in B\n" in text


@pytest.mark.parametrize(
    ("file", "first"),
    [("musetrace/docs/compare.md", "global  stop4     compute"), ("README.md", "sliding: more than the")],
)
def test_what_is_quoted_of_the_comparison_is_what_it_says(text: str, file: str, first: str) -> None:
    docs = (RECORDINGS.parents[1] / file).read_text(encoding="utf-8")
    quoted = docs[docs.index(first) :].partition("\n```")[0]
    assert "that stop4 saved turned into waiting" in quoted
    for part in quoted.split("\n...\n"):
        assert part in text
