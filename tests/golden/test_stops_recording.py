"""What is said of the stops between ranks on two H200s, each number from the raw stamps (``stop_skew``)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from musetrace import analysis
from musetrace.store import Run, open_run
from tests.golden.stop_skew import Skew, median_with_interval, table

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
RECORDING = SAMPLES / "recordings" / "full-h200-x2"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(shutil.copytree(RECORDING, tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def skew() -> Skew:
    return Skew.read(RECORDING)


def test_the_clocks_of_two_gpus_are_aligned_as_their_comparisons_say(run: Run, skew: Skew) -> None:
    assert set(skew.process.values()) == {0, 1}
    for entry in run.manifest["ranks"]:
        told, clock = entry["alignment"], skew.clock[entry["rank"]]
        if skew.process[entry["rank"]] == 0:
            assert (told["method"], told["error_ns"]) == ("same_clock", 0)
            continue
        assert (told["method"], told["note"]) == ("peer_ping_pong", None)
        assert tuple(zip(told["measured_at_ns"], told["offsets_ns"], strict=True)) == clock.points
        assert (told["residual_ns"] is None) == (clock.residual_ns is None)
        assert abs((told["residual_ns"] or 0) - (clock.residual_ns or 0)) <= 1
        assert 0 <= told["error_ns"] - clock.error_ns <= 2
    assert analysis.alignment_error_ns(run) == max(
        entry["alignment"]["error_ns"] for entry in run.manifest["ranks"]
    )


def test_who_is_last_at_each_stop_and_how_long_ranks_are_ahead_is_what_the_stamps_say(
    run: Run, skew: Skew
) -> None:
    kinds = dict.fromkeys(kind for kind, _ in skew.arrived)
    for kind in kinds:
        judged, told = (
            by_stop(answer(run, layer_kind=kind)) for answer in (analysis.stops, analysis.arrivals)
        )
        mine = {stop: launches for (its, stop), launches in skew.arrived.items() if its == kind}
        assert {stop for stop, _ in told} == set(mine)
        for stop, launches in mine.items():
            late = [skew.late(of) for of in launches.values()]
            for rank in run.ranks:
                leads = sorted(max(of.values()) - of[rank] for of in launches.values())
                row = told[stop, rank]
                assert row["lead_n"] == len(leads)
                assert abs(row["lead_mean_ns"] - sum(leads) / len(leads)) <= 1
                assert row["lead_p50_ns"] == leads[(len(leads) - 1) // 2]
                apart_ns = max(skew.apart_ns(rank, other) for other in run.ranks)
                assert 0 <= row["lead_uncertainty_ns"] - skew.tick_ns - apart_ns <= 2
                if (stop, rank) not in judged:
                    continue  # nobody waits there in launches of this kind
                last = sum(one == {rank} for one in late)
                tied = sum(rank in one and len(one) > 1 for one in late)
                assert judged[stop, rank]["last_share"] == pytest.approx(last / len(late))
                assert judged[stop, rank]["tied_share"] == pytest.approx(tied / len(late))


def by_stop(found: Any) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["stop"], row["rank"]): row for row in found.to_pylist()}


def test_the_readmes_table_of_skew_is_that_of_the_recording(skew: Skew) -> None:
    """Another recording has another table: ``python -m tests.golden.stop_skew RUN`` prints it."""
    assert "\n".join(table(skew)) in (SAMPLES.parent / "README.md").read_text(encoding="utf-8")


def test_a_median_has_an_exact_interval_from_six_values_on() -> None:
    assert median_with_interval([5, 1, 4, 2, 3]) == (3, None)
    assert median_with_interval([6, 5, 1, 4, 2, 3]) == (3, (1, 6))
    # Of 9 values the second and the eighth: 2 (1 + 9) / 2^9 = 3.9 %.
    assert median_with_interval(list(range(1, 10))) == (5, (2, 8))
