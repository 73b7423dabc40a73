"""`musetrace info` and `report` of runs whose ranks have clocks of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musetrace.cli import main
from musetrace.store import open_run
from tests.clock_runs import PEER, WHY, build_run_of_two_clocks
from tests.unit.decode_step_run import build_decode_steps


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out.replace("\N{PLUS-MINUS SIGN}", "+-")


def words(line: str) -> list[str]:
    return line.split()


def test_info_has_a_line_for_each_rank_and_why_it_is_no_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(build_run_of_two_clocks(tmp_path / "run", {"peer_failure": WHY}))
    lines = printed(capsys, "info", run, "--width", "100").splitlines()
    at = lines.index(
        "clocks, in us: times of a rank plus its offset are those of rank 0's clock, by n comparisons"
    )
    assert lines[at + 1].split() == words("rank clock of aligned by offset +- n residual drift, ppb")
    assert [line.split() for line in lines[at + 2 : at + 6]] == [
        words("0 rank 0 same clock 0.000 0.000 - - -"),
        words("1 rank 0 same clock 0.000 0.000 - - -"),
        # 2 us of each of two anchors, in the slower clock and rounded up; over 40 us.
        words("2 rank 2 host anchors -1,000.000 4.008 2 - +0 +-200,350,000"),
        words(f"rank 2: {WHY}"),
    ]


def test_the_report_says_above_the_stops_how_well_ranks_are_aligned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(build_run_of_two_clocks(tmp_path / "run", {"peer": PEER}, peer_at_end=True))
    text = " ".join(printed(capsys, "report", run, "--width", "100").split())
    sentence = (
        "2 clocks: a time of one rank is good to +-0.60 us against another's; who came last by less is tied "
        "(worst: rank 2, by peer ping-pong)"
    )
    title, _, table = text.partition(sentence)
    assert title.endswith("came last, or tied by the clock ")
    assert table.split()[:3] == ["waits,", "us", "stop"]
    rows = json.loads(printed(capsys, "report", run, "--json"))
    assert rows["alignment_error_ns"] == 601
    assert [(row["last_share"], row["tied_share"]) for row in rows["stops"]] == [(0, 0), (0.5, 0.5), (0, 0.5)]
    assert [row["method"] for row in rows["clocks"]] == ["same_clock", "same_clock", "peer_ping_pong"]


def test_a_comparison_at_the_start_only_is_worse_by_the_drift_that_two_clocks_may_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_run_of_two_clocks(tmp_path / "run", {"peer": PEER})
    told = json.loads(printed(capsys, "info", str(tmp_path / "run"), "--json"))["ranks"][2]["alignment"]
    # The last stamp is 34 us after the comparison: 100 ppm of it.
    assert (told["method"], told["error_ns"], told["drift_ppb"]) == ("peer_ping_pong", 600 + 4, None)


def test_comparisons_between_steps_are_followed_and_what_they_leave_is_part_of_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half way the offset is 40 ns beside the line from the start to the end, and so is a time there."""
    half = {**PEER, "at_ns": 1_025_000, "offset_ns": PEER["offset_ns"] + 40, "error_ns": 500}
    run = build_run_of_two_clocks(tmp_path / "run", {"peer": PEER}, peer_at_end=True, peer_between=half)
    told = json.loads(printed(capsys, "info", str(run), "--json"))["ranks"][2]["alignment"]
    assert told["offsets_ns"] == [-1_000_000, -999_960, -1_000_000]
    assert (told["residual_ns"], told["error_ns"]) == (40, 600 + 40 + 1)
    lines = [line.split() for line in printed(capsys, "info", str(run), "--width", "100").splitlines()]
    assert words("2 rank 2 peer ping-pong -1,000.000 0.641 3 0.040 +0 +-30,000,000") in lines
    row = json.loads(printed(capsys, "report", str(run), "--json"))["clocks"][2]
    assert (row["comparisons"], row["residual_ns"], row["error_ns"]) == (3, 40, 641)
    leads = json.loads(printed(capsys, "report", str(run), "--json"))["arrivals"]
    # Rank 2 sends last at 12,000, its offset grown by 14 ns, and 38,100; rank 1 at 18,000 and 38,000.
    lead_ns = {row["rank"]: row["lead_mean_ns"] for row in leads}
    assert lead_ns[2] == pytest.approx((18_000 - 12_000 - 14) / 2, abs=1)


def test_ranks_of_two_hosts_are_said_to_be_not_aligned_and_nobody_is_said_to_be_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(build_run_of_two_clocks(tmp_path / "run", {}, host="there"))
    text = " ".join(printed(capsys, "report", run, "--width", "100").split())
    assert "2 clocks, and rank 2 is not aligned: who came last is not judged" in text
    text = " ".join(printed(capsys, "info", run, "--width", "100").split())
    assert "2 rank 2 Unix time only -1,000.000 not aligned 1 - -" in text
    assert "rank 2: it is on another host, or in another time namespace, than the first rank" in text
    stops = json.loads(printed(capsys, "report", run, "--json"))["stops"]
    assert {row["last_share"] for row in stops} == {None}


def test_of_one_clock_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = build_run_of_two_clocks(tmp_path / "run", {})
    (run / "rank-0002.mtj").unlink()
    assert open_run(run).verdict == "incomplete"
    for verb in ("info", "report"):
        assert main([verb, str(run), "--width", "100"]) == 3
        assert "clocks" not in capsys.readouterr().out


def test_a_missing_rank_is_named_above_the_stops_where_nobody_is_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = build_decode_steps(tmp_path / "run", ranks=3)
    (run / "rank-0001.mtj").unlink()
    assert main(["report", str(run), "--width", "100"]) == 3
    page = capsys.readouterr().out
    assert "\nrank 1 is missing: who came last is not judged\n" in page
    assert "observed 66.6 %" in page
    assert main(["report", str(run), "--json"]) == 3
    rows = json.loads(capsys.readouterr().out)["stops"]
    assert {(row["last_share"], row["tied_share"]) for row in rows} == {(None, None)}
