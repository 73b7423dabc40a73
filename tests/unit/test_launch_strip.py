"""The launches of a step in order, and the steps one after the other: against a slow oracle and by hand."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

from hypothesis import given, settings

from musetrace import analysis
from tests.unit import idle_oracle
from tests.unit.analysis_oracle import BUSY, in_scope, op_kind, percentile, spread
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch
from tests.unit.test_idle_examples import pieces_of


@given(questions())
@settings(max_examples=200, deadline=None)
def test_the_strip_is_the_oracles(question: tuple[FakeRun, dict[str, Any]]) -> None:
    run, scope = question
    rows = analysis.launch_strip(run, **scope).to_pylist()
    wall: dict[tuple[int, int, int], int] = defaultdict(int)
    idle, pieces = dict(wall), dict(wall)
    for (*key, _), launch, spans in idle_oracle.instances(run, scope):
        place = (key[0], key[1], key[2])
        busy = {t for x in spans if op_kind(run, x.job)[1] in BUSY for t in range(x.begin, x.begin + x.dur)}
        wall[place] += launch.end - launch.begin
        idle[place] = idle.get(place, 0) + len(set(range(launch.begin, launch.end)) - busy)
    for (*key, _), _, _ in (one for of in pieces_of(run, scope).values() for one in of):
        place = (key[0], key[1], key[2])
        pieces[place] = pieces.get(place, 0) + 1
    launches, _, _ = in_scope(run, scope["layer_kind"], scope["rank"], scope["step"])
    of_place: dict[tuple[int, int, str], list[tuple[tuple[int, int, int], Launch]]] = defaultdict(list)
    for key, launch in launches.items():
        of_place[launch.launch, launch.layer, launch.kind].append((key, launch))
    assert [row["launch"] for row in rows] == sorted(row["launch"] for row in rows)
    assert {(row["launch"], row["layer"], row["kind"]) for row in rows} == set(of_place)
    for row in rows:
        mine = of_place[row["launch"], row["layer"], row["kind"]]
        lengths = [(launch.end - launch.begin, key[1:]) for key, launch in mine]
        assert row["n"] == len(mine)
        for name, value in spread("launch", lengths, run.tick_ns).items():
            assert row[name] == value, name
        told = [key for key, _ in mine if wall[key]]
        assert row["idle_n"] == len(told)
        shares = sorted(Fraction(idle[key], wall[key]) for key in told)
        middle = percentile(list(range(len(shares))), 50)
        assert row["idle_share_p50"] == (None if middle is None else float(shares[middle]))
        off = [run.tick_ns * pieces.get(key, 0) / wall[key] for key in told if run.tick_ns is not None]
        assert row["idle_share_uncertainty"] == max(off, default=None)


def test_each_step_is_as_long_as_on_its_slowest_rank_and_odd_ones_are_marked() -> None:
    """Step s ends at 50 + s on rank 0 and 10 later on rank 1; step 7 takes 400 ns. Host: 40 + 7 s."""
    launches = [
        Launch(rank, step, 0, 0, "sliding", 0, 400 if step == 7 else 50 + step + 10 * rank, 1)
        for rank in (0, 1)
        for step in range(9)
    ]
    run = FakeRun(launches, [], 1, (0, 1))
    rows = analysis.step_lengths(run).to_pylist()
    device = [row for row in rows if row["clock"] == "device"]
    assert [row["step_ns"] for row in device] == [60, 61, 62, 63, 64, 65, 66, 400, 68]
    assert [row["step"] for row in device if row["is_outlier"]] == [7]
    assert {row["step_uncertainty_ns"] for row in device} == {1}
    host = [row for row in rows if row["clock"] == "host"]
    assert [row["step_ns"] for row in host] == [40 + 7 * step for step in range(9)]
    assert not any(row["is_outlier"] for row in host)
    assert {row["step_uncertainty_ns"] for row in host} == {None}
    of_rank = analysis.step_lengths(run, rank=0).to_pylist()
    assert [row["step_ns"] for row in of_rank[:7]] == list(range(50, 57))
