"""The probe on a real GPU: every experiment runs, and its figures have the right order of magnitude."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from musetrace.cli import main
from musetrace.probe.delays import DELAYS_US
from musetrace.probe.experiments import EXPERIMENTS, chosen, run
from musetrace.probe.facts import Fact, Outcome
from musetrace.probe.gpu import require_gpu
from musetrace.probe.memory import L2_MIB, STREAM_KIB

pytestmark = pytest.mark.gpu

Measured = Callable[[str], Outcome]


@pytest.fixture(scope="module")
def measured(cuda: ModuleType) -> Measured:
    """Each experiment once, with a tenth of the samples."""
    done: dict[str, Outcome] = {}

    def one(name: str) -> Outcome:
        if name not in done:
            (done[name],) = run(require_gpu(quick=True), chosen("cuda", [name]))
        return done[name]

    return one


def medians(outcome: Outcome, name: str) -> dict[tuple[str, float | int | None], float | int]:
    return {(one.case, one.at): one.median for one in outcome.facts if one.name == name}


@pytest.mark.parametrize("name", [experiment.name for experiment in EXPERIMENTS["cuda"]])
def test_every_experiment_ends(measured: Measured, name: str) -> None:
    outcome = measured(name)
    for one in outcome.facts:
        print(one)
    assert outcome.state == "skipped" if outcome.why.startswith("needs a second GPU") else "measured", (
        outcome.why
    )
    assert outcome.state != "failed", outcome.why
    assert outcome.seconds < 60


def test_the_tick_divides_all_steps(cuda: ModuleType, measured: Measured) -> None:
    tick_ns = medians(measured("timer"), "tick")["", None]
    assert 1 <= tick_ns <= 1024
    steps = np.diff(cuda.clock_reads(10_000).astype(np.int64))
    assert (steps >= 0).all()
    assert (steps % tick_ns == 0).all()
    for cost in medians(measured("timer"), "read_cost").values():
        assert 1 < cost < 1000


def test_the_unix_offset_is_bounded(measured: Measured) -> None:
    assert 0 < medians(measured("unix_offset"), "offset_error")["", None] < 10_000_000


def test_an_sm_has_a_clock_of_some_ghz(measured: Measured) -> None:
    rates = medians(measured("sm_clock"), "rate")
    assert set(rates) == {("idle", None), ("HMMA", None)}
    assert all(0.3 < rate < 4 for rate in rates.values())


def test_delays_come_back_roughly(measured: Measured) -> None:
    errors = medians(measured("known_delays"), "error")
    assert len(errors) == 8 * len(DELAYS_US)
    assert all(
        abs(error) < 500 for (case, _), error in errors.items() if case.startswith("spin, %globaltimer")
    )
    # By cycles a length can be as wrong as the clock is unsteady, and so can what is known of a loop's.
    assert all(
        abs(error) < 100 * at for (case, at), error in errors.items() if at and case.startswith("loop")
    )
    assert all(abs(error) < 1000 * at for (case, at), error in errors.items() if at and "SM" in case)


def test_stamps_cost_less_than_the_launch(measured: Measured) -> None:
    launches = medians(measured("stamp_cost"), "launch")
    assert len(launches) == 4
    assert all(10 < us < 1000 for us in launches.values())
    assert all(abs(us) < 50 for us in medians(measured("stamp_cost"), "added").values())


def test_the_stream_reads_terabytes(measured: Measured) -> None:
    rates = medians(measured("stream"), "rate")
    assert [at for _, at in rates] == list(STREAM_KIB)
    assert all(0.5 < rate < 8 for rate in rates.values())
    assert 1 < rates["", 64] < 6


def test_reading_l2_takes_microseconds(measured: Measured) -> None:
    times = medians(measured("l2"), "time")
    assert len(times) == 3 * len(L2_MIB)
    assert all(0.1 < us < 1000 for us in times.values())
    assert times["loaded", 8] < times["cold", 8]


@pytest.mark.parametrize("name", ["hop", "fence", "poll", "barrier"])
def test_waits_take_tens_of_nanoseconds_to_some_microseconds(measured: Measured, name: str) -> None:
    facts: list[Fact] = list(measured(name).facts)
    assert facts
    assert all(10 < one.median < 200_000 for one in facts)


def test_the_way_to_another_gpu(measured: Measured) -> None:
    outcome = measured("peer")
    if outcome.state == "skipped":
        pytest.skip(outcome.why)
    assert all(100 < one.median < 1_000_000 for one in outcome.facts)


def test_launches_follow_each_other(measured: Measured) -> None:
    outcome = measured("boundary")
    assert all(5000 < ns < 100_000 for ns in medians(outcome, "period").values())
    assert all(100 < ns < 100_000 for ns in medians(outcome, "empty_launch").values())
    plain = medians(outcome, "first_begins")["plain", None]
    assert 0 < plain < 100_000


def test_one_block_fits_on_every_sm(cuda: ModuleType, measured: Measured) -> None:
    clusters = medians(measured("clusters"), "clusters")
    assert clusters["of 1 block", None] == cuda.probe.device_facts()["sms"]
    assert all(count >= 0 for count in clusters.values())


def test_straight_lines_need_a_cycle_and_more_for_an_instruction(measured: Measured) -> None:
    paces = medians(measured("instruction_cache"), "cycles_per_instruction")
    assert all(0.9 < pace < 50 for pace in paces.values())
    assert paces["alone, 12 warps", 20] <= paces["alone, 12 warps", 200]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("hop_cycles", (True, 0, 100_000, 8)),
        ("hop_cycles", (True, 0, 4, 100_000)),
        ("hop_cycles", (True, 13, 4, 8)),
        ("operation_cycles", ("sleep", 0, 8)),
        ("operation_cycles", ("fence_gpu", 0, 0)),
        ("barrier_cycles", (0,)),
        ("known_delays", (False, [], [], 1, 1)),
        ("known_delays", (False, [1000], [1, 2], 1, 1)),
        ("known_delays", (False, [1_000_000], [1], 1000, 1)),
        ("clock_pairs", (False, 1, 1000)),
        ("unix_brackets", (0,)),
        ("stream_times", ([0], 1 << 20, 1)),
        ("stamp_costs", (0, 1, False, False)),
        ("body_cycles", (1000, 1, 1, 1)),
        ("l2_times", ("warm", 1 << 20, 1)),
        ("boundary_times", ("soft", 0, 1, 1)),
        ("peer_hop_cycles", (0, 0, 0)),
    ],
)
def test_wrong_arguments_are_refused(cuda: ModuleType, function: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        getattr(cuda.probe, function)(*arguments)
    # And nothing is broken by it.
    assert len(cuda.clock_reads(2)) == 2


def test_the_verb_prints_and_draws(
    cuda: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    page = tmp_path / "page.html"
    code = main(["probe", "--quick", "--only", "stream,hop", "--json", "--plot", str(page)])
    assert code == 0
    probed = json.loads(capsys.readouterr().out)
    assert probed["complete"]
    assert probed["device"]["kind"] == "cuda"
    assert page.stat().st_size > 1_000_000
