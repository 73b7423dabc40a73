"""The report: its page against golden text, its numbers against the schedule that the run was built from."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from musetrace.cli import main
from tests.builders import build_run_from_text
from tests.unit.decode_step_run import BLOCKS, JOBS, KINDS, RANKS, STEPS, build_decode_steps, schedule

GOLDEN = Path(__file__).parents[1] / "golden"
Out = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one, so that a run is named by a short path."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(capsys: Out, *options: str, code: int = 0) -> str:
    assert main(["report", "run", *options]) == code
    return capsys.readouterr().out


def report_json(capsys: Out, *options: str, code: int = 0) -> dict[str, Any]:
    document = json.loads(report(capsys, "--json", *options, code=code))
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("width", [80, 140])
def test_the_page_is_the_golden_one(here: Path, capsys: Out, width: int) -> None:
    build_decode_steps(here / "run")
    page = report(capsys, "--width", str(width))
    assert page == (GOLDEN / f"report_{width}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 61, 79, 119, 120, 200])
def test_no_line_is_wider_than_asked_for(here: Path, capsys: Out, width: int) -> None:
    build_decode_steps(here / "run")
    lines = report(capsys, "--width", str(width)).splitlines()
    assert len(lines) > 100
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line.endswith("~")]


def test_every_op_of_the_report_is_the_schedules(here: Path, capsys: Out) -> None:
    build_decode_steps(here / "run")
    rows = report_json(capsys)["ops"]["sliding"]
    begins: dict[tuple[str, str], list[int]] = {}
    ends: dict[tuple[str, str], list[int]] = {}
    of = {row.name: (row.op, row.kind) for row in JOBS}
    for rank in range(RANKS):
        for step in range(STEPS):
            for launch in (number for number, kind in enumerate(KINDS) if kind == "sliding"):
                for block in range(BLOCKS):
                    times = schedule("sliding", rank, block, step, launch)
                    for name in dict.fromkeys(of[job] for job in times):
                        mine = [times[job] for job in times if of[job] == name]
                        begins.setdefault(name, []).append(min(begin for begin, _ in mine))
                        ends.setdefault(name, []).append(max(end for _, end in mine))
    assert {(row["op"], row["kind"]) for row in rows} == set(begins)
    for row in rows:
        name = (row["op"], row["kind"])
        for side, values in (("begin", sorted(begins[name])), ("end", sorted(ends[name]))):
            for percent in (10, 50, 90):
                expected = values[math.ceil(percent * len(values) / 100) - 1]
                assert row[f"{side}_p{percent}_ns"] == expected, (name, side, percent)
        assert row["n"] == len(begins[name])


def test_the_slower_rank_is_named_at_every_stop(here: Path, capsys: Out) -> None:
    build_decode_steps(here / "run")
    stops = report_json(capsys)["stops"]
    assert [(row["stop"], row["rank"]) for row in stops] == [
        (f"stop{n}", r) for n in range(1, 6) for r in (0, 1)
    ]
    assert {(row["rank"], row["last_share"]) for row in stops} == {(0, 0.0), (1, 1.0)}
    # Rank 0 is 0.9 us earlier at the stop, and leaves it with rank 1.
    waits = {(row["stop"], row["rank"]): row["wait_p50_ns"] for row in stops}
    assert waits["stop4", 0] == 65_000 - 60_600
    assert waits["stop4", 1] == 65_000 - 60_600 - 900


def test_json_has_stable_keys_and_whole_nanoseconds(here: Path, capsys: Out) -> None:
    build_decode_steps(here / "run")
    document = report_json(capsys)
    assert list(document) == [
        "run",
        "verdict",
        "conditions",
        "scope",
        "thresholds",
        "ignored_spans",
        "below_tick_spans",
        "observed",
        "clocks",
        "alignment_error_ns",
        "steps",
        "step_parts",
        "step_histogram",
        "outlier_steps",
        "step_growth",
        "launches",
        "findings",
        "ops",
        "idle",
        "idle_after",
        "attribution",
        "stops",
        "arrivals",
        "loads_ahead",
        "blocks",
        "critical_path",
        "critical_edges",
        "what_ifs",
        "what_if",
        "overlap",
        "utilisation",
        "roofline",
        "launch_edges",
        "losses",
        "notes",
    ]
    assert document["verdict"] == "complete"
    assert document["conditions"]["launches"] == RANKS * STEPS * len(KINDS)
    assert list(document["ops"]) == ["entry", "sliding", "global", "head"]
    for section in ("launches", "stops", "blocks", "loads_ahead"):
        for row in document[section]:
            assert all(
                isinstance(value, int) for name, value in row.items() if name.endswith("_ns") and value
            )
    for row in document["blocks"]:
        assert row["busy_ns"] + row["idle_ns"] == row["wall_ns"]


def test_a_scope_narrows_every_section(here: Path, capsys: Out) -> None:
    build_decode_steps(here / "run")
    document = report_json(capsys, "--kind", "global", "--rank", "1", "--step", "2")
    assert document["scope"] == {"kind": "global", "rank": 1, "step": 2}
    assert list(document["ops"]) == ["global"]
    assert [(row["kind"], row["n"]) for row in document["launches"]] == [("global", 1)]
    assert [row["n"] for row in document["steps"]] == [1, 1]
    assert {row["n"] for row in document["ops"]["global"]} == {BLOCKS, BLOCKS - 1}
    assert {row["rank"] for row in document["stops"] + document["blocks"]} == {1}
    assert {row["launches"] for row in document["blocks"]} == {1}
    assert "only     kind global, rank 1, step 2\n" in report(
        capsys, "--kind", "global", "--rank", "1", "--step", "2"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rank", "7"), "musetrace: no rank 7 in this run: it has 0-1\n"),
        (("--step", "7"), "musetrace: no step 7 in this run: it has 0-2\n"),
        (
            ("--kind", "x\x1b"),
            "musetrace: no launch of kind 'x\\x1b' in what was chosen: it has entry, sliding\n",
        ),
    ],
)
def test_a_scope_that_the_run_does_not_have_is_refused(
    here: Path, capsys: Out, options: tuple[str, ...], message: str
) -> None:
    build_decode_steps(here / "run", kinds=("entry", "sliding"))
    assert main(["report", "run", *options]) == 1
    assert capsys.readouterr() == ("", message)


def test_blocks_of_a_large_run_are_summed_up(here: Path, capsys: Out) -> None:
    lines = [
        f"r0 s0 l0 layer=0 sliding b{block} w4 attention_compute 1000 {1010 + 10 * block}"
        for block in range(20)
    ]
    build_run_from_text(here / "run", "\n".join(lines), blocks=20)
    page = report(capsys)
    rows = [line.split() for line in page.partition("\nrank block")[2].splitlines()[1:4]]
    # 20 blocks work 10, 20 ... 200 ns of the launch's 200; no other is tied with them.
    assert [(row[1], " ".join(row[2:-9])) for row in rows] == [
        ("19", "busiest"),
        ("9", "median"),
        ("0", "least busy"),
    ]
    assert [row[-9] for row in rows] == ["0", "0", "0"]


def test_a_job_that_the_table_does_not_name_is_a_row_of_its_own(here: Path, capsys: Out) -> None:
    from tests.builders import JournalBuilder, launch_at, small_table

    builder = JournalBuilder(here / "run", small_table(), 1)
    launch = launch_at(0, 0)
    launch.slots[0, 10:12] = launch.header_ns[0] + 2, launch.header_ns[0] + 6
    builder.launch(launch)
    builder.end()
    assert "\njob#32773 compute " in report(capsys)
    assert "unknown_job             1  " in report(capsys)
    (row,) = (row for row in report_json(capsys)["ops"]["sliding"] if row["op"] == "job#32773")
    assert (row["n"], row["dur_p50_ns"]) == (1, 4)


def test_losses_come_last_and_flagged_spans_are_counted(here: Path, capsys: Out) -> None:
    text = """
        r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000 1400
        r0 s0 l0 layer=0 sliding b1 w4 attention_compute 1000 -
        r0 s0 l0 layer=0 sliding b1 w4 attention_merge   1900 1500
    """
    build_run_from_text(here / "run", text, world=2, end=False)
    page = report(capsys, code=3)
    last = page[page.index("\nno_end") :].splitlines()
    assert page.startswith("musetrace report: run is incomplete\n")
    assert "losses   no_end 1, reversed 1, missing_ranks 1\n" in page
    assert [line.split()[0] for line in last if line and not line.startswith(" ")] == [
        "no_end",
        "reversed",
        "missing_ranks",
        "note:",
        "note:",
        "2",
    ]
    assert last[-1] == "2 spans with a flag are in none of these numbers"
    assert report_json(capsys, code=3)["ignored_spans"] == 2


def test_a_run_without_stamps_has_host_times(here: Path, capsys: Out) -> None:
    from tests.builders import JournalBuilder
    from tests.unit.decode_step_run import job_table

    builder = JournalBuilder(here / "run", job_table(), 4, slot_bytes=0)
    builder.step(0, begin_ns=1_000, end_ns=8_000)
    builder.end()
    page = report(capsys)
    assert "host 1  7.00 7.00 7.00 7.00    -\n" in page
    assert "no launch left a stamp" in page


def test_names_from_a_file_are_shown_harmless(here: Path, capsys: Out) -> None:
    from tests.builders import JournalBuilder, LaunchStamps, launches_from_text, small_table

    evil = "\x1b]0;owned\x07\nx\u202e"
    stamps: LaunchStamps = launches_from_text("r0 s0 l0 layer=0 evil b0 w1 norm 10 20", small_table(), 1)[0][
        0
    ]
    stamps.kind = evil
    meta = {"device": {"name": evil, evil: [evil]}, "model": {evil: {evil: evil}}, "command": [evil]}
    builder = JournalBuilder(here / "run", small_table(), 1, meta=meta)
    builder.launch(stamps)
    builder.end()
    for verb in ("report", "info", "check"):
        assert main([verb, "run"]) == 0
        text = capsys.readouterr().out
        assert not [char for char in text if char != "\n" and not char.isprintable()]
        assert main([verb, "run", "--json"]) == 0
        assert capsys.readouterr().out.isascii()
    assert "\\x1b]0;owned\\x07\\x0ax\\u202e launches: us from the launch's begin" in report(capsys)


def test_idle_time_is_put_down_to_the_stops_of_the_schedule(here: Path, capsys: Out) -> None:
    build_decode_steps(here / "run")
    document = report_json(capsys, "--rank", "0")
    rows = {row["wait"]: row for row in document["idle"]["sliding"] if row["cause"] == "stop"}
    expected = 0
    for step in range(STEPS):
        for launch in (number for number, kind in enumerate(KINDS) if kind == "sliding"):
            for block in range(BLOCKS):
                times = schedule("sliding", 0, block, step, launch)
                # Jitter lets the send end in the wait, and what follows begin in it.
                (begin, end), (_, sent) = times["stop4_wait_ranks"], times["gemm2_send"]
                expected += min(end, times["stop4_combine"][0]) - max(begin, sent)
    assert rows["stop4_wait_ranks"]["total_ns"] == expected
    pairs = {row["wait"]: row for row in report_json(capsys)["attribution"]}
    # Rank 1's sends end 0.9 us later.
    assert pairs["stop4_wait_ranks"]["last_ranks"][0] == {"rank": 1, "share": 1.0}
    assert pairs["stop4_wait_ranks"]["awaits"] == "gemm2_send"
