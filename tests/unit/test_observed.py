"""Every answer tells how much of what it is about was recorded, and the report shows it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from musetrace import analysis
from musetrace.cli import main
from musetrace.store import Run, open_run
from musetrace.wording.observed import below_all
from tests.builders import JournalBuilder, LaunchStamps, build_run, small_table
from tests.unit.analysis_oracle import observed as observed_of_rank
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch, Span
from tests.unit.test_analysis_questions import Question

BLOCKS = 4
START_NS = 9_000_000_000_000


def stamps(step: int, launch: int, *, blocks: int = BLOCKS, open_ends: int = 0) -> LaunchStamps:
    """A launch in which some blocks load for 50 ns; the others leave nothing, ``open_ends`` no end."""
    begin = START_NS + 10_000 * step + 1_000 * launch
    slots = np.zeros((BLOCKS, 16), dtype=np.uint64)
    slots[:blocks, 0], slots[:blocks, 1] = begin, begin + 50
    slots[:open_ends, 1] = 0
    epochs = np.array([launch + 1] * blocks + [0] * (BLOCKS - blocks), dtype=np.uint32)
    headers = np.where(epochs > 0, begin, 0).astype(np.uint64)
    return LaunchStamps(step, launch, slots, headers, epoch=launch + 1, epochs=epochs)


def record(folder: Path, *launches: LaunchStamps, lost: dict[int, int] | None = None, world: int = 1) -> Run:
    builder = JournalBuilder(folder, small_table(), BLOCKS, world=world)
    for step in sorted({one.step for one in launches}):
        for one in launches:
            if one.step == step:
                builder.launch(one)
        if (number := (lost or {}).get(step)) is not None:
            builder.loss(step, 90, number)
        builder.step(step)
    builder.end()
    return open_run(folder)


def test_all_of_a_whole_run_was_observed(tmp_path: Path) -> None:
    table = analysis.op_timeline(record(tmp_path / "run", stamps(0, 0), stamps(0, 1)))
    assert analysis.observed(table) == 1
    assert analysis.observed_counts(table) == {"launches": (2, 2), "blocks": (8, 8), "spans": (8, 8)}


def test_lost_launches_count_in_their_step(tmp_path: Path) -> None:
    run = record(tmp_path / "run", stamps(0, 0), stamps(1, 0), stamps(1, 1), lost={1: 2})
    assert analysis.observed(analysis.op_timeline(run)) == 3 / 5
    assert analysis.observed(analysis.op_timeline(run, step=0)) == 1
    assert analysis.observed(analysis.op_timeline(run, step=1)) == 2 / 4
    assert analysis.launch_times(run)["observed"].to_pylist() == [3 / 5]
    assert analysis.observed(analysis.step_times(run, step=1)) == 2 / 4


def test_blocks_that_did_not_report_and_spans_with_a_flag_multiply(tmp_path: Path) -> None:
    run = record(tmp_path / "run", stamps(0, 0), stamps(0, 1, blocks=2, open_ends=1))
    table = analysis.block_busy(run)
    assert analysis.observed_counts(table) == {"launches": (2, 2), "blocks": (6, 8), "spans": (5, 6)}
    assert analysis.observed(table) == pytest.approx(6 / 8 * 5 / 6)
    assert set(table["observed"].to_pylist()) == {6 / 8 * 5 / 6}


def test_a_missing_rank_should_have_had_what_another_has(tmp_path: Path) -> None:
    run = record(tmp_path / "run", stamps(0, 0), stamps(0, 1), world=4)
    assert run.losses["missing_ranks"] == [1, 2, 3]
    assert analysis.observed(analysis.idle(run)) == 1 / 4
    assert analysis.observed(analysis.idle(run, rank=0)) == 1  # nothing of this rank is missing


def test_a_damaged_chunk_may_have_been_a_launch_of_any_step(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path / "run", small_table(), BLOCKS)
    builder.launch(stamps(0, 0))
    begins = builder.writer.path.stat().st_size
    builder.launch(stamps(0, 1))
    builder.step(0)
    builder.launch(stamps(1, 0))
    builder.step(1)
    builder.end()
    data = bytearray(builder.writer.path.read_bytes())
    data[begins + 200] ^= 1
    builder.writer.path.write_bytes(data)
    run = open_run(tmp_path / "run")
    assert run.losses["damaged_chunks"] == 1
    assert analysis.observed(analysis.op_timeline(run)) == 2 / 3
    assert analysis.observed(analysis.op_timeline(run, step=1)) == 1 / 2


def test_a_launch_without_a_stamp_was_not_observed() -> None:
    launches = [Launch(0, 0, 0, 0, "sliding", 1, 9, 2), Launch(0, 0, 1, 1, "sliding", 9, 9, 2, stamped=False)]
    table = analysis.op_timeline(FakeRun(launches, [Span(0, 0, 0, 0, 2, 1, 4)], 2, (0,)))
    assert analysis.observed_counts(table) == {"launches": (1, 2), "blocks": (2, 4), "spans": (1, 1)}
    assert analysis.observed(table) == 1 / 2


def test_nothing_expected_is_no_share() -> None:
    assert analysis.observed(analysis.op_timeline(FakeRun([], [], 4, ()))) is None
    assert analysis.observed(analysis.clocks(FakeRun([], [], 4, ()))) is None


@given(questions())
def test_of_one_rank_it_is_the_oracles(question: Question) -> None:
    run, scope = question
    for rank in run.ranks if scope["rank"] is None else [scope["rank"]]:
        if scope["step"] not in (None, *run.step_ids(rank)):
            continue
        of_rank = [x.kind for x in run.all_launches if x.rank == rank and scope["step"] in (None, x.step)]
        kind = scope["layer_kind"] if scope["layer_kind"] in of_rank else None
        table = analysis.op_timeline(run, layer_kind=kind, rank=rank, step=scope["step"])
        assert analysis.observed(table) == pytest.approx(observed_of_rank(run, kind, rank, scope["step"]))


def test_the_report_shows_it_in_every_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "run", stamps(0, 0), stamps(0, 1, blocks=3), lost={0: 1})
    assert main(["report", "run", "--width", "100"]) == 0
    page = capsys.readouterr().out
    # 7 of 12 blocks of 3 launches: steps, parts, launches and their edges, the one op, blocks, idle.
    assert page.count("observed 58.3 %: 2 of 3 launches, 7 of 12 blocks\n") >= 7
    assert main(["report", "run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["observed"]
    assert [told[name]["share"] for name in ("steps", "blocks", "launches", "attribution")] == [7 / 12] * 4
    assert told["ops"]["sliding"]["blocks"] == {"seen": 7, "expected": 12}
    build_run(tmp_path / "whole", {0: [stamps(0, 0)]}, small_table(), BLOCKS)
    assert main(["report", "whole"]) == 0
    assert "observed" not in capsys.readouterr().out


def test_less_than_all_never_reads_as_all() -> None:
    assert [below_all(share) for share in (0.99999, 0.5, 0.0005)] == ["99.9 %", "50.0 %", "0.0 %"]


def test_an_index_that_does_not_say_in_which_step_counts_it_in_all(tmp_path: Path) -> None:
    run = record(tmp_path / "run", stamps(0, 0), stamps(1, 0), lost={1: 1})
    for entry in run.manifest["ranks"]:
        del entry["lost_by_step"]
    assert [analysis.observed(analysis.op_timeline(run, step=step)) for step in (0, 1)] == [1 / 2, 1 / 2]


def test_dropped_blocks_and_stamps_without_a_slot_were_expected() -> None:
    class WithLosses(FakeRun):
        @property
        def manifest(self) -> dict[str, object]:
            losses = {"dropped_blocks": 3, "overflow_stamps": 5}
            return {**super().manifest, "ranks": [{"rank": 0, "losses": losses}]}

    run = WithLosses([Launch(0, 0, 0, 0, "sliding", 1, 9, 2)], [Span(0, 0, 0, 0, 2, 1, 4)], 2, (0,))
    counts = analysis.observed_counts(analysis.op_timeline(run))
    assert counts == {"launches": (1, 1), "blocks": (2, 5), "spans": (1, 4)}
