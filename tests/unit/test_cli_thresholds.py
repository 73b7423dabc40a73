"""The report's thresholds change what they say they change, and nothing is left out by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from musetrace.cli import main
from tests.unit.decode_step_run import build_decode_steps

Out = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_decode_steps(tmp_path_factory.mktemp("thresholds") / "run", steps=8)


def report(run: Path, capsys: Out, *options: str) -> dict[str, Any]:
    assert main(["report", str(run), "--json", *options]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def by_cause(document: dict[str, Any]) -> dict[str, int]:
    return {row["wait"] or row["cause"]: row["total_ns"] for row in document["idle"]["sliding"]}


def test_short_gaps_and_heads_are_put_together(run: Path, capsys: Out) -> None:
    usual, other = by_cause(report(run, capsys)), by_cause(report(run, capsys, "--shortest-idle", "1000"))
    heads = by_cause(report(run, capsys, "--head", "1000000"))
    assert sum(usual.values()) == sum(other.values()) == sum(heads.values())
    assert "short" not in usual
    assert other["short"] > 0
    # The stops' waits are parts of gaps of more than 1 us, and stay.
    assert other["stop4_wait_ranks"] == usual["stop4_wait_ranks"]
    assert "head" not in heads
    assert heads["unlabelled"] == usual["unlabelled"] + usual["head"]
    assert {name: ns for name, ns in heads.items() if name != "unlabelled"} == {
        name: ns for name, ns in usual.items() if name not in ("unlabelled", "head")
    }


def test_who_is_last_most_often_is_a_matter_of_the_share(run: Path, capsys: Out) -> None:
    def named(*options: str) -> list[float]:
        rows = report(run, capsys, *options)["attribution"]
        return [one["share"] for row in rows for one in row["last_blocks"] or ()]

    usual = named()
    assert min(usual) < 0.3 < max(usual)
    assert named("--last-share", "30") == [share for share in usual if share >= 0.3]


def test_slow_steps_are_a_matter_of_the_threshold(run: Path, capsys: Out) -> None:
    usual, eager = report(run, capsys), report(run, capsys, "--outliers", "0.5")
    assert usual["outlier_steps"] == []
    assert len(eager["outlier_steps"]) > 0
    assert (usual["thresholds"]["outliers"], eager["thresholds"]["outliers"]) == (5, 0.5)


def test_the_page_says_which_thresholds_are_not_the_usual(run: Path, capsys: Out) -> None:
    assert main(["report", str(run), "--width", "120"]) == 0
    assert "\ntold " not in capsys.readouterr().out
    options = ("--shortest-idle", "1000", "--head", "64", "--last-share", "12.5", "--outliers", "3")
    assert main(["report", str(run), "--width", "120", *options]) == 0
    lines = capsys.readouterr().out.split("\n\n")[0]
    assert " ".join(lines.split()).endswith(
        "told gaps below 1,000 ns put together, launch skew from 64 ns on, last in 12.5 % or more, "
        "slow steps from 3 deviations on"
    )
    assert "too short to tell" not in lines


@pytest.mark.parametrize(
    "options",
    [
        ("--shortest-idle", "-1"),
        ("--head", "-5"),
        ("--last-share", "101"),
        ("--last-share", "nan"),
        ("--outliers", "0"),
        ("--outliers", "inf"),
    ],
)
def test_a_threshold_that_makes_no_sense_is_a_usage_error(
    run: Path, capsys: Out, options: tuple[str, str]
) -> None:
    assert main(["report", str(run), *options]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert options[0] in told.err
