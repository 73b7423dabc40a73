"""What the clock leaves open, as ``report`` and ``info`` show it; what it cannot tell is not ranked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from musetrace.cli import main
from musetrace.wording.numbers import bounded_us
from tests.builders import build_run_from_text
from tests.unit.decode_step_run import build_decode_steps

Out = pytest.CaptureFixture[str]
GLOBALTIMER = {"clock": {"name": "globaltimer", "tick_ns": 32}}
# 1,024,000 ns is 32,000 ticks of 32 ns.
LINE = "r{rank} s0 l0 layer=0 sliding b{block} w{warp} {job} {begin} {end}"


def line(job: str, begin: int, end: int, *, rank: int = 0, block: int = 0, warp: int = 4) -> str:
    return LINE.format(
        rank=rank, block=block, warp=warp, job=job, begin=1_024_000 + begin, end=1_024_000 + end
    )


def printed(capsys: Out, *argv: str | Path) -> str:
    assert main([str(word) for word in argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def document(capsys: Out, verb: str, run: Path) -> dict[str, Any]:
    parsed = json.loads(printed(capsys, verb, run, "--json"))
    assert isinstance(parsed, dict)
    return parsed


def rows_of(section: Any) -> list[dict[str, Any]]:
    tables = section.values() if isinstance(section, dict) else [section]
    return [row for table in tables for row in table]


def test_every_time_in_json_has_its_uncertainty_beside_it(tmp_path: Path, capsys: Out) -> None:
    told = document(capsys, "report", build_decode_steps(tmp_path / "run"))
    found = 0
    for section in ("steps", "launches", "ops", "stops", "arrivals", "blocks", "loads_ahead"):
        for row in rows_of(told[section]):
            for name in row:
                if not name.endswith("_ns") or "uncertainty" in name:
                    continue
                stem = name.removesuffix("_ns")
                stem = stem[:-4] if stem[-4:] in ("_p10", "_p50", "_p90") else stem
                stamped = row[name] is not None and row.get("clock") != "host"
                assert (row[f"{stem}_uncertainty_ns"] is not None) == stamped, (section, name)
                found += 1
    assert found > 500


def test_the_clock_line_says_what_every_number_is_good_to(tmp_path: Path, capsys: Out) -> None:
    text = line("attention_compute", 0, 3200)
    run = build_run_from_text(tmp_path / "run", text, blocks=1, meta=GLOBALTIMER)
    sign = "\N{PLUS-MINUS SIGN}"
    clock = f"clock    globaltimer, tick 32 ns: times are {sign}32 ns, means and sums as {sign} says\n"
    assert clock in printed(capsys, "report", run)
    assert clock in printed(capsys, "info", run)


def test_a_span_within_one_tick_is_kept_counted_and_shown_as_below_it(tmp_path: Path, capsys: Out) -> None:
    text = "\n".join(
        [
            line("attention_compute", 0, 0),
            line("attention_merge", 320, 3200),
            line("attention_wait_kv", 64, 64),
            line("gemm1_compute", 3200, 3232),
        ]
    )
    run = build_run_from_text(tmp_path / "run", text, blocks=1, meta=GLOBALTIMER)
    told = document(capsys, "report", run)
    assert (told["below_tick_spans"], told["ignored_spans"]) == (2, 0)
    (wait,) = (row for row in told["ops"]["sliding"] if row["kind"] == "wait")
    assert (wait["n"], wait["dur_p50_ns"], wait["dur_uncertainty_ns"]) == (1, 0, 32)
    page = printed(capsys, "report", run, "--width", "140")
    last = page.splitlines()[-1]
    assert last.startswith("2 spans are shorter than the clock's tick of 32 ns: they count")
    (shown,) = (row for row in page.splitlines() if row.startswith("attention wait"))
    assert " <0.04 " in shown


def test_a_run_whose_launches_take_no_time_is_reported(tmp_path: Path, capsys: Out) -> None:
    text = "\n".join(
        line(job, 0, 0, rank=rank) for job in ("attention_compute", "stop1_norm") for rank in (0, 1)
    )
    run = build_run_from_text(tmp_path / "run", text, blocks=1, meta=GLOBALTIMER)
    for width in ("60", "80", "140"):
        assert "sliding" in printed(capsys, "report", run, "--width", width)


def ops_in_order(page: str) -> list[str]:
    section = page.partition("launches: us from the launch's begin")[2].partition("\n\n")[0]
    _, _, rows = section.partition("\nop ")
    return [" ".join(row.split()[:2]) for row in rows.splitlines()[1:]]


@pytest.mark.parametrize(("apart", "order"), [(32, ["attention", "gemm1"]), (64, ["gemm1", "attention"])])
def test_ops_whose_begins_are_not_told_apart_stand_in_job_table_order(
    tmp_path: Path, capsys: Out, apart: int, order: list[str]
) -> None:
    # Each begin relative to the launch's may be off by a tick, so two of them by two against each other.
    text = "\n".join([line("gemm1_compute", 320, 960), line("attention_compute", 320 + apart, 960)])
    run = build_run_from_text(tmp_path / "run", text, blocks=1, meta=GLOBALTIMER)
    assert ops_in_order(printed(capsys, "report", run)) == [f"{op} compute" for op in order]


def test_blocks_that_the_clock_does_not_tell_apart_are_tied(tmp_path: Path, capsys: Out) -> None:
    # Of 3,200 ns blocks 0 to 16 work 1,600 or 1,632, block 17 works 1,760 and block 18 works 320.
    busy = [1600 + 32 * (block % 2) for block in range(17)] + [1760, 320]
    text = "\n".join(
        [line("attention_compute", 0, length, block=block) for block, length in enumerate(busy)]
        + [line("gemm1_load", 3168, 3200, block=block, warp=0) for block in range(19)]
    )
    run = build_run_from_text(tmp_path / "run", text, blocks=19, meta=GLOBALTIMER)
    page = printed(capsys, "report", run)
    rows = [row.split() for row in page.partition("\nrank block")[2].splitlines()[1:4]]
    assert [(row[1], row[-9]) for row in rows] == [("17", "0"), ("0", "16"), ("18", "0")]


def test_a_rank_that_is_last_by_less_than_a_tick_is_tied(tmp_path: Path, capsys: Out) -> None:
    def shares(late: int) -> tuple[str, str]:
        text = "\n".join(
            line(job, 320, 960 + late * rank, rank=rank, warp=3 if "send" in job else 4)
            for job in ("o_proj_send", "stop1_wait_ranks")
            for rank in (0, 1)
        )
        run = build_run_from_text(tmp_path / str(late), text, blocks=1, meta=GLOBALTIMER)
        stops = printed(capsys, "report", run).partition("\nstops: ")[2].partition("\narrivals: ")[0]
        (row,) = (row for row in stops.splitlines() if row.startswith("stop1    1"))
        return row.split()[6], row.split()[8]

    assert shares(0) == shares(16) == ("0.0", "100.0")
    assert shares(32) == ("100.0", "0.0")


@pytest.mark.parametrize("tick", [None, 0, -1, "32", 10**12, True, 1.5])
def test_with_an_unknown_tick_nothing_is_ranked_and_every_uncertainty_is_null(
    tmp_path: Path, capsys: Out, tick: object
) -> None:
    text = "\n".join(
        [line("gemm1_compute", 320, 960, block=block) for block in range(20)]
        + [line("attention_compute", 640, 960, block=block) for block in range(20)]
        + [line("gemm1_load", 0, 32, warp=0), line("o_proj_send", 32, 64, warp=3)]
        + [line("stop1_wait_ranks", 64, 96), line("stop1_wait_ranks", 64, 96, rank=1)]
        + [line("o_proj_send", 3200, 6400, warp=3, rank=1)]
    )
    meta = {"clock": {"name": "globaltimer", "tick_ns": tick}}
    run = build_run_from_text(tmp_path / "run", text, blocks=20, meta=meta)
    told = document(capsys, "report", run)
    assert (told["conditions"]["tick_ns"], told["below_tick_spans"]) == (None, None)
    for section in ("steps", "launches", "ops", "stops", "blocks", "loads_ahead"):
        for row in rows_of(told[section]):
            assert {value for name, value in row.items() if "uncertainty" in name} == {None}
    assert {(row["last_share"], row["tied_share"]) for row in told["stops"]} == {(None, None)}
    assert told["loads_ahead"][0]["during_share"] is None
    page = printed(capsys, "report", run, "--width", "140")
    assert "tick unknown" in page
    assert "nothing is ranked" in page
    assert "cannot tell" in page
    narrow = printed(capsys, "report", run)
    blocks = [row.split() for row in narrow.partition("\nrank block")[2].splitlines()[1:4]]
    assert {row[-9] for row in blocks} == {"19"}
    assert "tick     not known" in printed(capsys, "info", run)


@pytest.mark.parametrize(("clock", "code"), [({}, 0), (None, 3), ("globaltimer", 3), ([32], 3)])
def test_a_run_without_a_clock_is_reported(tmp_path: Path, capsys: Out, clock: object, code: int) -> None:
    text = line("attention_compute", 0, 320)
    run = str(build_run_from_text(tmp_path / "run", text, blocks=1, meta={"clock": clock}))
    for verb in ("report", "info"):
        assert main([verb, run]) == code
        assert "clock    not known, tick unknown: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tick", "step", "launches", "says", "seen"),
    [
        (
            32,
            32,
            12,
            "tick     32 ns by the recorder, from steps of the clock; all times of launches are",
            32,
        ),
        (32, 32, 3, "too few launches to see it", None),
        (1, 32, 12, "but all times of launches are multiples of 32 ns, so it may be more", 32),
        (32, 8, 12, "but the times of launches have steps of 8 ns, so it is less", 8),
    ],
)
def test_info_says_where_the_tick_is_known_from_and_whether_the_stamps_agree(
    tmp_path: Path, capsys: Out, tick: int, step: int, launches: int, says: str, seen: int | None
) -> None:
    text = "\n".join(
        f"r0 s0 l{launch} layer=0 sliding b0 w4 attention_compute {10_000 + 100 * launch * step} "
        f"{10_000 + (100 * launch + 7 + launch) * step}"
        for launch in range(launches)
    )
    meta = {"clock": {"name": "globaltimer", "tick_ns": tick}}
    run = build_run_from_text(tmp_path / "run", text, blocks=1, meta=meta)
    assert says in " ".join(printed(capsys, "info", run, "--width", "200").split(" ")).replace("\n", " ")
    told = document(capsys, "info", run)
    assert (told["tick_ns"], told["tick_seen_ns"]) == (tick, seen)


@pytest.mark.parametrize(
    ("time_ns", "uncertainty_ns", "decimals", "text"),
    [
        (0, 32, 2, "<0.04"),
        (31, 32, 2, "<0.04"),
        (-31, 32, 2, "<0.04"),
        (32, 32, 2, "0.03"),
        (-32, 32, 2, "-0.03"),
        (0, 32, 1, "<0.1"),
        (0, 32, 0, "<1"),
        (0, 30, 2, "<0.03"),
        (0, 1, 2, "<0.01"),
        (0, None, 2, "0.00"),
        (None, 32, 2, "-"),
        (None, None, 2, "-"),
    ],
)
def test_a_time_below_its_uncertainty_is_shown_as_that(
    time_ns: int | None, uncertainty_ns: int | None, decimals: int, text: str
) -> None:
    assert bounded_us(time_ns, uncertainty_ns, decimals) == text
