"""The analysis through journals, index and store, against the same oracle on the stamps that went in."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace import analysis
from musetrace.store import Run, open_run
from tests.builders import LaunchStamps, build_run
from tests.unit import analysis_oracle as oracle
from tests.unit.fake_run import SMALL_JOBS, FakeRun, Launch, Span, small_table

START_NS = 1_790_000_000_000_000_000
LAUNCH_NS = 100


class Stamped(NamedTuple):
    """A pair of stamps, ns from the launch's begin; ``length`` None is a job that never stamped its end."""

    rank: int
    step: int
    launch: int
    block: int
    job: int
    begin: int
    length: int | None


@st.composite
def recordings(draw: st.DrawFn) -> tuple[int, int, dict[tuple[int, int], list[str]], list[Stamped]]:
    """Ranks, blocks, the kinds of each (rank, step)'s launches, and at most one pair for each slot pair."""
    ranks, blocks = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    kinds = {
        (rank, step): draw(st.lists(st.sampled_from(["sliding", "global"]), min_size=1, max_size=3))
        for rank in range(ranks)
        for step in (0, 2)
    }
    places = [(*key, launch) for key, of in kinds.items() for launch in range(len(of))]
    pair = st.builds(
        lambda place, *rest: Stamped(*place, *rest),
        st.sampled_from(places),
        st.integers(0, blocks - 1),
        st.integers(0, len(SMALL_JOBS) - 1),
        st.integers(0, 40),
        st.sampled_from([None, 0, 1, 2, 5, 9, 20]),
    )
    return ranks, blocks, kinds, draw(st.lists(pair, max_size=40, unique_by=lambda one: one[:5]))


def begin_of(step: int, launch: int) -> int:
    return START_NS + step * 10_000 + launch * LAUNCH_NS


def record(
    folder: Path, ranks: int, blocks: int, kinds: dict[tuple[int, int], list[str]], pairs: list[Stamped]
) -> Run:
    launches: dict[int, list[LaunchStamps]] = defaultdict(list)
    for (rank, step), of in kinds.items():
        for launch, kind in enumerate(of):
            begin = begin_of(step, launch)
            slots = np.zeros((blocks, 2 * len(SMALL_JOBS)), dtype=np.uint64)
            for one in pairs:
                if one[:3] == (rank, step, launch):
                    slots[one.block, 2 * one.job] = begin + one.begin
                    slots[one.block, 2 * one.job + 1] = (
                        0 if one.length is None else begin + one.begin + one.length
                    )
            header_ns = np.full(blocks, begin, dtype=np.uint64)
            launches[rank].append(LaunchStamps(step, launch, slots, header_ns, layer=launch, kind=kind))
    return open_run(build_run(folder, launches, small_table(), blocks, world=ranks))


def in_memory(
    ranks: int, blocks: int, kinds: dict[tuple[int, int], list[str]], pairs: list[Stamped]
) -> FakeRun:
    """What the store should make of it: a launch ends at its last stamp, a step begins at a header."""
    launches, spans = [], []
    for (rank, step), of in kinds.items():
        for launch, kind in enumerate(of):
            mine = [one for one in pairs if one[:3] == (rank, step, launch)]
            offset = launch * LAUNCH_NS
            ends = [offset + one.begin + (one.length or 0) for one in mine]
            launches.append(Launch(rank, step, launch, launch, kind, offset, max([offset, *ends]), blocks))
            for one in mine:
                flag = int(one.length is None)
                spans.append(
                    Span(rank, step, launch, one.block, one.job, offset + one.begin, one.length or 0, flag)
                )
    return FakeRun(launches, spans, blocks, tuple(range(ranks)))


@given(
    recordings(), st.sampled_from([None, "sliding"]), st.sampled_from([None, 0]), st.sampled_from([None, 2])
)
@settings(max_examples=40, deadline=None)
def test_answers_through_the_store_are_the_oracles(
    recording: tuple[int, int, dict[tuple[int, int], list[str]], list[Stamped]],
    kind: str | None,
    rank: int | None,
    step: int | None,
) -> None:
    expected = in_memory(*recording)
    in_scope = [x for x in expected.all_launches if rank in (None, x.rank) and step in (None, x.step)]
    kind = kind if kind in {x.kind for x in in_scope} else None
    with tempfile.TemporaryDirectory() as folder:
        run = record(Path(folder) / "run", *recording)
        ops = analysis.op_timeline(run, layer_kind=kind, rank=rank, step=step)
        blocks = analysis.block_busy(run, layer_kind=kind, rank=rank, step=step)
        loads = analysis.ring_ahead(run, layer_kind=kind, rank=rank, step=step)
        for table, answered in (
            (ops, oracle.op_timeline(expected, kind, rank, step)),
            (blocks, oracle.block_busy(expected, kind, rank, step)),
            (loads, oracle.ring_ahead(expected, kind, rank, step)),
        ):
            assert (table.to_pylist(), analysis.ignored_spans(table)) == answered
        if rank is None:
            table = analysis.stops(run, layer_kind=kind, step=step)
            answered = oracle.stops(expected, kind, step)
            assert (table.to_pylist(), analysis.ignored_spans(table)) == answered
