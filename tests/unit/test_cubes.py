"""Answers from the sums that the index keeps equal those from spans; sums that cannot be trusted are not."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from musetrace import analysis
from musetrace.analysis.gaps.longest_pieces import LONGEST
from musetrace.analysis.gaps.rank_leads import RANK_LEADS
from musetrace.analysis.kept_sums.cubes import QUESTIONS, keep_cubes, states_by_kind
from musetrace.analysis.kept_sums.op_lengths import OP_LENGTHS
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.step_sums import STEP_SUMS
from musetrace.store import Run, open_run
from musetrace.store.cube_store import CubeStore
from tests.builders import build_run_from_text, small_table
from tests.unit.analysis_traces import runs
from tests.unit.fake_run import FakeRun, Launch, Span

ASKED: dict[str, Callable[..., pa.Table]] = {
    "op_timeline": analysis.op_timeline,
    "block_busy": analysis.block_busy,
    "stops": analysis.stops,
    "arrivals": analysis.arrivals,
    "ring_ahead": analysis.ring_ahead,
    "idle": analysis.idle,
    "idle_after": analysis.idle_after,
    "idle_blocks": analysis.idle_blocks,
    "attribution": analysis.attribution,
    "launches": analysis.launches,
    "launch_strip": analysis.launch_strip,
    "overlap": analysis.overlap,
    "utilisation": analysis.utilisation,
    "roofline": analysis.roofline,
}
OF_ALL_RANKS = ("stops",)  # that cannot be asked about one
IN_TEST_WINDOWS_OVERVIEW = ("launch_cover",)


@dataclass
class Cubed:
    """A run in memory with cubes, whose spans cannot be read any more."""

    run: FakeRun
    cubes: CubeStore
    readable: bool = True

    def __getattr__(self, name: str) -> Any:
        assert name != "spans" or self.readable, "the spans were read"
        return getattr(self.run, name)


def scopes(run: FakeRun) -> Iterator[dict[str, Any]]:
    """Every scope of all steps that the run has."""
    for rank in (None, *run.ranks):
        kinds = {x.kind for x in run.all_launches if rank in (None, x.rank)}
        yield from ({"layer_kind": kind, "rank": rank} for kind in (None, *sorted(kinds)))


# Of the jobs of the runs here, in all launches of a kind or in some layers.
BYTES = [
    {"kind": "sliding", "layers": None, "jobs": {"a_load": 400, "b_load": [9, 5, 20, 4, ""]}, "unknown": {}},
    {"kind": "global", "layers": [2], "jobs": {"a_load": 400, "b_send": 7}, "unknown": {"b_load": "why"}},
    {"kind": "global", "layers": [3, 4], "jobs": {"a_load": 500, "stop1_norm": 3}, "unknown": {}},
]


@given(runs())
@settings(max_examples=15, deadline=None)
def test_in_every_scope_the_kept_sums_answer_as_the_spans_do(run: FakeRun) -> None:
    run = replace(run, job_bytes=BYTES)
    with tempfile.TemporaryDirectory() as folder:
        cubed = Cubed(run, CubeStore(Path(folder) / "cubes", 7))
        keep_cubes(cubed)  # type: ignore[arg-type]
        cubed.readable = False
        for scope in scopes(run):
            for name, ask in ASKED.items():
                if name in OF_ALL_RANKS:
                    if scope["rank"] is not None:
                        continue
                    scope = {"layer_kind": scope["layer_kind"]}
                answer, expected = ask(cubed, **scope), ask(run, **scope)
                assert answer.to_pylist() == expected.to_pylist(), (name, scope)
                assert answer.schema.metadata == expected.schema.metadata, (name, scope)


@given(runs())
@settings(max_examples=15, deadline=None)
def test_numbers_of_each_step_are_the_same_from_kept_sums(run: FakeRun) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cubed = Cubed(run, CubeStore(Path(folder) / "cubes", 7))
        keep_cubes(cubed)  # type: ignore[arg-type]
        cubed.readable = False
        for ranks in (run.ranks, run.ranks[:1]):
            for kind in (None, "sliding"):
                for question in SERIES:
                    answer = states_by_kind(cubed, question, ranks, kind)  # type: ignore[arg-type]
                    expected = states_by_kind(run, question, ranks, kind)
                    assert answer.seen == expected.seen
                    assert as_numbers(answer.states) == as_numbers(expected.states)


SERIES = (STEP_SUMS, OP_LENGTHS, LONGEST, RANK_LEADS)


def as_numbers(states: dict[str, dict[int | None, State]]) -> dict[Any, Any]:
    """Every sum and square by kind, rank, name and key."""
    return {
        (kind, rank, of, name): sums.as_dict()
        for kind, of_kind in states.items()
        for rank, state in of_kind.items()
        for of in ("sums", "squares")
        for name, sums in getattr(state, of).items()
        if len(sums)
    }


def test_every_question_that_is_kept_is_checked_here() -> None:
    assert {question.name for question in QUESTIONS} == {
        *ASKED,
        *IN_TEST_WINDOWS_OVERVIEW,
        *(one.name for one in SERIES),
    }


def test_steps_that_grew_are_told_from_kept_sums(tmp_path: Path) -> None:
    launches = [Launch(0, step, 0, 0, "sliding", 1, 90 if step == 9 else 30, 1) for step in range(10)]
    spans = [Span(0, step, 0, 0, 2, 3, 80 if step == 9 else 20) for step in range(10)]
    run = FakeRun(launches, spans, 1, (0,))
    cubed = Cubed(run, CubeStore(tmp_path / "cubes", 7))
    expected = analysis.step_growth(run)
    assert expected["growth_ns"].to_pylist() == [60]
    assert expected["of"].to_pylist() == ["a"]
    keep_cubes(cubed)  # type: ignore[arg-type]
    cubed.readable = False
    answer = analysis.step_growth(cubed)  # type: ignore[arg-type]
    assert answer.to_pylist() == expected.to_pylist()
    assert answer.schema.metadata == expected.schema.metadata


def test_a_run_whose_ranks_disagree_about_a_launch_is_answered_from_its_spans(tmp_path: Path) -> None:
    launches = [Launch(rank, 0, 0, 0, kind, 1, 30, 1) for rank, kind in ((0, "sliding"), (1, "global"))]
    spans = [Span(0, 0, 0, 0, 7, 3, 5), Span(1, 0, 0, 0, 8, 2, 9)]  # a send, and a wait for it
    run = FakeRun(launches, spans, 1, (0, 1))
    cubed = Cubed(run, CubeStore(tmp_path / "cubes", 7))
    keep_cubes(cubed)  # type: ignore[arg-type]
    for kind in (None, "global"):
        table = analysis.attribution(cubed, layer_kind=kind)  # type: ignore[arg-type]
        assert table.to_pylist() == analysis.attribution(run, layer_kind=kind).to_pylist()
    assert analysis.attribution(run)["last_n"].to_pylist() == [1]
    assert analysis.attribution(run, layer_kind="global")["last_n"].to_pylist() == [0]
    cubed.readable = False
    keep_cubes(cubed)  # type: ignore[arg-type]  # known by now: not tried again


TEXT = """
r0 s0 l0 layer=0 sliding b0 w0 gemm_load 1000 1100
r0 s0 l0 layer=0 sliding b0 w1 gemm_wait 1020 1110
r0 s0 l0 layer=0 sliding b0 w1 norm      1115 1180
r0 s1 l0 layer=0 sliding b0 w1 norm      2000 2010
"""


def made(folder: Path, text: str = TEXT, recorded_at: str = "2026-01-01T00:00:00+00:00") -> Run:
    """A small run on disk, with cubes."""
    build_run_from_text(folder, text, small_table(), blocks=1, meta={"recorded_at": recorded_at})
    run = open_run(folder)
    keep_cubes(run)
    return run


def timeline(run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = analysis.op_timeline(run).to_pylist()
    return rows


def is_kept(run: Run) -> bool:
    assert run.cubes is not None
    return run.cubes.read("op_timeline", 1) is not None


def cut(folder: Path) -> None:
    file = folder / "cubes" / "op_timeline.arrow"
    file.write_bytes(file.read_bytes()[:-40])


def flip(folder: Path) -> None:
    """A bit of a sum: everything else fits."""
    file = folder / "cubes" / "op_timeline.arrow"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def of_another_run(folder: Path) -> None:
    other = folder.with_name("other")
    made(other, TEXT.replace("1180", "1190"), "2026-01-01T00:00:01+00:00")
    shutil.copytree(other / "cubes", folder / "cubes", dirs_exist_ok=True)


def numbers_of_another_run(folder: Path) -> None:
    """Of the same length, under this run's description."""
    other = folder.with_name("other")
    made(other, TEXT.replace("1180", "1190"), "2026-01-01T00:00:01+00:00")
    shutil.copy(other / "cubes" / "op_timeline.arrow", folder / "cubes" / "op_timeline.arrow")


def older(folder: Path) -> None:
    file = folder / "cubes" / "op_timeline.json"
    file.write_text(file.read_text("utf-8").replace('"version": 1', '"version": 0'), "utf-8")


def no_description(folder: Path) -> None:
    (folder / "cubes" / "op_timeline.json").unlink()


def half_a_description(folder: Path) -> None:
    file = folder / "cubes" / "op_timeline.json"
    file.write_text(file.read_text("utf-8")[:50], "utf-8")


def no_folder(folder: Path) -> None:
    shutil.rmtree(folder / "cubes")


@pytest.mark.parametrize(
    "harm",
    [
        cut,
        flip,
        of_another_run,
        numbers_of_another_run,
        older,
        no_description,
        half_a_description,
        no_folder,
    ],
)
def test_a_cube_that_cannot_be_trusted_is_not(harm: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = made(folder)
    expected = timeline(run)
    assert is_kept(run)
    shutil.rmtree(folder / "cubes")
    assert timeline(open_run(folder)) == expected  # from spans
    keep_cubes(run)
    harm(folder)
    again = open_run(folder)
    assert timeline(again) == expected
    keep_cubes(again)
    assert is_kept(again)
    assert timeline(again) == expected


def test_a_new_index_has_no_cubes_of_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made(folder)
    (folder / "manifest.json").unlink()
    run = open_run(folder)
    assert not (folder / "cubes").exists()
    assert not is_kept(run)


def test_facts_kept_with_a_run_leave_its_cubes_alone(tmp_path: Path) -> None:
    from musetrace.store.index import keep_probe

    folder = tmp_path / "run"
    made(folder)
    keep_probe(folder, {"device": "synthetic"})
    run = open_run(folder)
    assert run.manifest["probe"] == {"device": "synthetic"}
    assert is_kept(run)


def test_a_folder_that_cannot_be_written_costs_the_cubes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    run = made(folder)
    expected = timeline(run)
    shutil.rmtree(folder / "cubes")

    def full(self: CubeStore, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CubeStore, "write", full)
    keep_cubes(run)
    assert timeline(run) == expected


def test_the_report_keeps_cubes_and_says_the_same_with_them(tmp_path: Path, run_cli: Any) -> None:
    folder = tmp_path / "run"
    build_run_from_text(folder, TEXT, small_table(), blocks=1)
    first = run_cli("report", folder, "--json")
    described = json.loads((folder / "cubes" / "idle.json").read_text("utf-8"))
    assert {cell["about"]["kind"] for cell in described["cells"]} == {"sliding"}
    second = run_cli("report", folder, "--json")
    assert json.loads(first.stdout) == json.loads(second.stdout)
