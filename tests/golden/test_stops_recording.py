"""What is said of the stops of two ranks on two H200s, each number from the raw stamps, by loops.

Nothing of the store or of the analysis is used for what is expected: stamps and comparisons of clocks are
read from the journals, an offset is a line from comparison to comparison in whole fractions.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

from musetrace import analysis
from musetrace.cli import main
from musetrace.store import Run, open_run
from tests.golden.stamped_launches import Journal

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
RUNS = ("mini-h200-x2", "mini-h200-x2-gather")
STEPS, BLOCKS, TICK_NS = 8, 8, 32
LAYERS = {"sliding": 6, "global": 2}
STOPS = {
    "stop1": "o_proj_send",
    "stop2": "router_send",
    "stop3": "gemm1_send",
    "stop4": "gemm2_send",
    "stop5": "unpooler_send",
}

# By kind of launch and stop, by (step, launch), by rank: when its last block was through, on rank 0's clock.
Arrived = dict[tuple[str, str], dict[tuple[int, int], dict[int, int]]]


class Clock:
    """Rank 1's against rank 0's, as its journal compares them."""

    def __init__(self, journal: Journal) -> None:
        compared = [one["peer"] for one in journal.clocks if "peer" in one]
        self.points = [(one["at_ns"], one["offset_ns"]) for one in compared]
        between = [
            abs(offset - line(before, after, at))
            for before, (at, offset), after in zip(
                self.points, self.points[1:], self.points[2:], strict=False
            )
        ]
        self.residual_ns = max(between)
        self.error_ns = max(one["error_ns"] for one in compared) + self.residual_ns

    def on_rank_0(self, time_ns: int) -> Fraction:
        for before, after in zip(self.points, self.points[1:], strict=False):
            if before[0] <= time_ns <= after[0]:
                return time_ns + line(before, after, time_ns)
        raise AssertionError("a stamp before the first or behind the last comparison")


def line(before: tuple[int, int], after: tuple[int, int], at: int) -> Fraction:
    return before[1] + Fraction((after[1] - before[1]) * (at - before[0]), after[0] - before[0])


@pytest.fixture(scope="module", params=RUNS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(name: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(shutil.copytree(SAMPLES / "recordings" / name, tmp_path_factory.mktemp("runs") / name))


@pytest.fixture(scope="module")
def journals(name: str) -> list[Journal]:
    return [Journal.read(SAMPLES / "recordings" / name / f"rank-000{rank}.mtj") for rank in (0, 1)]


@pytest.fixture(scope="module")
def clock(journals: list[Journal]) -> Clock:
    return Clock(journals[1])


@pytest.fixture(scope="module")
def arrived(journals: list[Journal], clock: Clock) -> Arrived:
    found: Arrived = defaultdict(lambda: defaultdict(dict))
    for rank, journal in enumerate(journals):
        for launch in journal.launches():
            if launch.kind not in LAYERS:
                continue
            for stop, send in STOPS.items():
                ends = [span.end for block in launch.blocks for span in block if span.job == send]
                last = launch.begin + max(ends)
                on_axis = last if rank == 0 else clock.on_rank_0(last).__floor__()
                found[launch.kind, stop][launch.step, launch.launch][rank] = on_axis
    assert set(found) == {(kind, stop) for kind in LAYERS for stop in STOPS}
    return found


def test_the_clocks_are_compared_at_start_middle_and_end_and_the_error_is_what_they_leave(
    run: Run, clock: Clock
) -> None:
    told = run.manifest["ranks"][1]["alignment"]
    assert (told["method"], told["note"]) == ("peer_ping_pong", None)
    assert list(zip(told["measured_at_ns"], told["offsets_ns"], strict=True)) == clock.points
    assert len(clock.points) == 3
    assert abs(told["residual_ns"] - clock.residual_ns) <= 1
    assert abs(told["error_ns"] - clock.error_ns) <= 2
    assert analysis.alignment_error_ns(run) == told["error_ns"]


def test_who_is_last_at_each_stop_and_how_long_the_other_was_ahead_is_what_the_stamps_say(
    run: Run, clock: Clock, arrived: Arrived
) -> None:
    band = TICK_NS + run.manifest["ranks"][1]["alignment"]["error_ns"]
    for (kind, stop), launches in arrived.items():
        assert len(launches) == STEPS * LAYERS[kind]
        leads = {rank: [max(of.values()) - of[rank] for of in launches.values()] for rank in (0, 1)}
        judged = {row["rank"]: row for row in of_stop(analysis.stops(run, layer_kind=kind), stop)}
        told = {row["rank"]: row for row in of_stop(analysis.arrivals(run, layer_kind=kind), stop)}
        tied = sum(abs(of[0] - of[1]) < band for of in launches.values())
        for rank, mine in leads.items():
            assert told[rank]["lead_n"] == len(mine)
            assert abs(told[rank]["lead_mean_ns"] - sum(mine) / len(mine)) <= 1
            assert told[rank]["lead_p50_ns"] == sorted(mine)[(len(mine) - 1) // 2]
            assert told[rank]["lead_uncertainty_ns"] == band
            last = sum(of[rank] - of[1 - rank] >= band for of in launches.values())
            assert judged[rank]["last_share"] == pytest.approx(last / len(launches))
            assert judged[rank]["tied_share"] == pytest.approx(tied / len(launches))


def of_stop(table: object, stop: str) -> list[dict[str, int]]:
    return [row for row in table.to_pylist() if row["stop"] == stop]  # type: ignore[attr-defined]


def test_what_the_readme_quotes_of_the_stops_is_what_the_report_says(
    run: Run, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name != RUNS[0]:
        return
    assert main(["report", str(run.path), "--width", "100"]) == 0
    page = capsys.readouterr().out
    text = (SAMPLES.parent / "README.md").read_text(encoding="utf-8")
    quoted = text[text.index("stop  rank   n") :].partition("\n```")[0]
    assert len(quoted.splitlines()) > 10
    for row in quoted.splitlines():
        assert row in page
