"""``info`` and ``check``: what a run is, and whether its index says what its journals say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from musetrace.cli import main
from musetrace.cli.check import check
from musetrace.cli.conditions import decoded_text
from musetrace.store import open_run
from musetrace.store.losses import COUNTED
from tests.builders import JournalBuilder, build_run_from_text, small_table
from tests.unit.decode_step_run import build_decode_steps

Out = pytest.CaptureFixture[str]
SPAN = "r0 s0 l0 layer=0 sliding b0 w4 attention_compute {} {}"


def printed(capsys: Out, *argv: str | Path, code: int = 0) -> str:
    assert main([str(word) for word in argv]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def document(capsys: Out, *argv: str | Path, code: int = 0) -> dict[str, Any]:
    parsed = json.loads(printed(capsys, *argv, "--json", code=code))
    assert isinstance(parsed, dict)
    return parsed


def test_info_says_what_the_run_is(tmp_path: Path, capsys: Out) -> None:
    run = build_decode_steps(tmp_path / "run")
    page = printed(capsys, "info", run, "--width", "90")
    for line in (
        "id       000102030405060708090a0b0c0d0e0f\n",
        "stamps   register\n",
        "clock    CLOCK_MONOTONIC, tick 1 ns: times are \N{PLUS-MINUS SIGN}1 ns, ",
        "run      2 ranks x 4 blocks, 3 steps, 36 launches, 3,840 spans\n",
        "jobs     figure, 41 jobs in 82 slots\n",
    ):
        assert line in page
    told = document(capsys, "info", run)
    assert (told["world"], told["blocks"], told["launches"], told["spans"]) == (2, 4, 36, 3840)
    assert [entry["verdict"] for entry in told["ranks"]] == ["complete", "complete"]
    assert told["bytes"] == sum(path.stat().st_size for path in run.glob("*.mtj"))


def test_info_ends_with_every_kind_of_loss(tmp_path: Path, capsys: Out) -> None:
    builder = JournalBuilder(tmp_path / "run", small_table(), 2, world=3)
    builder.loss(0, 0, 7)
    builder.end()
    table = printed(capsys, "info", tmp_path / "run", code=3).partition("\nlosses\n")[2]
    counts = {line.split()[0]: line.split()[1] for line in table.splitlines() if not line.startswith(" ")}
    assert list(counts)[: len(COUNTED) + 1] == [*COUNTED, "missing_ranks"]
    assert counts["lost_launches"] == "7"
    assert counts["missing_ranks"] == "2"
    assert {counts[name] for name in COUNTED if name != "lost_launches"} == {"0"}


def test_info_reads_a_journal_that_was_never_closed(tmp_path: Path, capsys: Out) -> None:
    run = build_run_from_text(tmp_path / "run", SPAN.format(1000, 1400), end=False)
    told = document(capsys, "info", run, code=3)
    assert told["verdict"] == "incomplete"
    assert (told["spans"], told["ranks"][0]["end_reason"]) == (1, None)
    assert "no end chunk" in told["notes"][0]


def test_check_of_a_good_run(tmp_path: Path, capsys: Out) -> None:
    run = build_decode_steps(tmp_path / "run")
    lines = printed(capsys, "check", run).splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["0", "complete"], ["1", "complete"]]
    assert all(line.endswith("equals its journal") for line in lines[1:3])
    assert document(capsys, "check", run)["index_sound"] is True


def test_check_without_journals_reads_the_index(tmp_path: Path, capsys: Out) -> None:
    run = build_decode_steps(tmp_path / "run")
    open_run(run)
    for journal in run.glob("*.mtj"):
        journal.unlink()
    assert "no journal to compare with" in printed(capsys, "check", run)


def test_check_finds_an_index_of_other_spans(tmp_path: Path, capsys: Out) -> None:
    run = build_run_from_text(tmp_path / "run", SPAN.format(1000, 1400))
    other = build_run_from_text(tmp_path / "other", SPAN.format(1000, 1401))
    for one in (run, other):
        open_run(one)
    shutil.copy(other / "spans" / "rank-0000.arrow", run / "spans" / "rank-0000.arrow")
    page = printed(capsys, "check", run, code=1)
    assert "its spans of step 0 differ from those of the journal" in " ".join(page.split())
    assert page.splitlines()[-1].endswith("but its index is wrong")


@pytest.mark.parametrize("table", ["spans", "launches", "steps"])
def test_check_finds_a_flipped_bit_in_the_index(tmp_path: Path, capsys: Out, table: str) -> None:
    begin_ns, dur_ns = 1_234_567, 7_654_321
    run = build_run_from_text(tmp_path / "run", SPAN.format(begin_ns, begin_ns + dur_ns))
    open_run(run)
    path = run / table / "rank-0000.arrow"
    stored = (dur_ns if table == "spans" else begin_ns).to_bytes(4, "little")
    content = path.read_bytes()
    assert stored in content
    path.write_bytes(content.replace(stored, bytes([stored[0] ^ 1]) + stored[1:], 1))
    told = document(capsys, "check", run, code=1)
    assert told["index_sound"] is False
    assert str(path) in told["ranks"][0]["problem"]


def test_check_finds_a_manifest_that_tells_other_counts(tmp_path: Path) -> None:
    run = open_run(build_run_from_text(tmp_path / "run", SPAN.format(1000, 1400)))
    run.manifest["ranks"][0]["spans"] = 2
    (rank,) = check(run)
    assert rank.index == "wrong"
    assert rank.problem is not None
    assert rank.problem.startswith("its index tells spans 2, the journal has 1; delete manifest.json")


def test_check_of_a_killed_recording_is_incomplete_with_a_sound_index(tmp_path: Path, capsys: Out) -> None:
    run = build_run_from_text(tmp_path / "run", SPAN.format(1000, 1400), end=False)
    told = document(capsys, "check", run, code=3)
    assert (told["verdict"], told["index_sound"]) == ("incomplete", True)


def test_what_the_steps_decoded_is_said_once_for_all_ranks() -> None:
    def run(tokens: list[int], begin: list[int], end: list[int]) -> SimpleNamespace:
        table = pa.table({"tokens": tokens, "host_begin_ns": begin, "host_end_ns": end})
        return SimpleNamespace(ranks=[0, 1], steps=lambda rank: table)

    # 9 tokens in 2 ms and 4 ms.
    told = decoded_text(run([4, 5], [10, 3_000_000], [2_000_010, 7_000_000]))  # type: ignore[arg-type]
    assert told == "9 tokens, 4.50 a step, 1,500.0 a second of steps by the host's clock"
    assert decoded_text(run([1, 0], [0, 5], [9, 8])) == "1 token, 0.50 a step"  # type: ignore[arg-type]
    assert decoded_text(run([0, 0], [1, 5], [2, 8])) == ""  # type: ignore[arg-type]
