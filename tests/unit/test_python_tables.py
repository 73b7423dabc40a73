"""`run.table()`: names and times are those of the stamps; and the recipes of the page on Python run."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import musetrace
from musetrace import analysis
from musetrace.errors import AnalysisError
from musetrace.job_table import Job, JobTable
from musetrace.store import Run, open_run
from musetrace.store.frame import ChunkType
from tests.builders import JournalBuilder, LaunchStamps, build_run, build_run_from_text, small_table
from tests.unit.decode_step_run import build_decode_steps

PAGE = Path(musetrace.__file__).parent / "docs" / "python.md"

TEXT = """
r0 s0 l0 layer=-1 entry   b0 w0 gemm_load 9000001000 9000001100
r0 s0 l0 layer=-1 entry   b1 w1 gemm_wait 9000001020 9000001100
r0 s0 l1 layer=0 sliding  b0 w1 norm      9000002000 9000002010
r0 s0 l1 layer=0 sliding  b1 w1 norm      9000002005 -
r0 s2 l0 layer=0 sliding  b1 w1 norm      9000009000 9000009007
r1 s0 l0 layer=-1 entry   b0 w0 gemm_load 9000001001 9000001102
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("tables") / "run"
    return open_run(build_run_from_text(folder, TEXT, small_table(), blocks=2))


def rows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def test_spans_have_names_and_times(run: Run) -> None:
    table = run.table("spans")
    names = ("rank", "step", "launch", "layer", "launch_kind", "op", "kind", "job", "block", "warp")
    assert sorted(rows(table, *names)) == [
        (0, 0, 0, -1, "entry", "gemm", "load", "gemm_load", 0, 0),
        (0, 0, 0, -1, "entry", "gemm", "wait", "gemm_wait", 1, 1),
        (0, 0, 1, 0, "sliding", "norm", "compute", "norm", 0, 1),
        (0, 0, 1, 0, "sliding", "norm", "compute", "norm", 1, 1),
        (0, 2, 0, 0, "sliding", "norm", "compute", "norm", 1, 1),
        (1, 0, 0, -1, "entry", "gemm", "load", "gemm_load", 0, 0),
    ]
    times = ("begin_ns", "end_ns", "dur_ns", "from_step_ns", "from_launch_ns", "flag")
    assert sorted(rows(table, *times)) == [
        (9_000_001_000, 9_000_001_100, 100, 0, 0, "ok"),
        (9_000_001_001, 9_000_001_102, 101, 0, 0, "ok"),
        (9_000_001_020, 9_000_001_100, 80, 20, 20, "ok"),
        (9_000_002_000, 9_000_002_010, 10, 1_000, 0, "ok"),
        (9_000_002_005, 9_000_002_005, 0, 1_005, 5, "no_end"),
        (9_000_009_000, 9_000_009_007, 7, 0, 0, "ok"),
    ]
    for name in ("launch_kind", "op", "kind", "job", "flag"):
        assert pa.types.is_dictionary(table.schema.field(name).type)


def test_launches_and_steps_have_times_and_gaps(run: Run) -> None:
    table = run.table("launches")
    times = ("begin_ns", "end_ns", "dur_ns", "from_step_ns", "gap_ns")
    assert rows(table, "rank", "step", "launch", "kind", *times) == [
        (0, 0, 0, "entry", 9_000_001_000, 9_000_001_100, 100, 0, 900),
        (0, 0, 1, "sliding", 9_000_002_000, 9_000_002_010, 10, 1_000, None),
        (0, 2, 0, "sliding", 9_000_009_000, 9_000_009_007, 7, 0, None),
        (1, 0, 0, "entry", 9_000_001_001, 9_000_001_102, 101, 0, None),
    ]
    steps = rows(run.table("steps"), "rank", "step", "begin_ns", "dur_ns", "launches", "spans")
    assert steps == [
        (0, 0, 9_000_001_000, 1_010, 2, 4),
        (0, 2, 9_000_009_000, 7, 1, 1),
        (1, 0, 9_000_001_001, 101, 1, 1),
    ]


def test_the_hash_of_a_steps_output_is_null_where_there_is_none(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path / "run", small_table(), 1)
    builder.json(
        ChunkType.STEP, {"step": 0, "host_begin_ns": 5, "host_end_ns": 9, "tokens": 3, "output": "ab" * 8}
    )
    builder.step(1)
    builder.end()
    steps = open_run(tmp_path / "run").table("steps")
    assert rows(steps, "host_begin_ns", "host_dur_ns", "tokens", "output") == [
        (5, 4, 3, "ab" * 8),
        (None, None, 0, None),
    ]


def test_the_job_table_is_a_table(run: Run) -> None:
    assert rows(run.table("jobs"), "job", "op", "kind", "awaits") == [
        ("gemm_load", "gemm", "load", None),
        ("gemm_wait", "gemm", "wait", "gemm_load"),
        ("norm", "norm", "compute", None),
    ]


@pytest.mark.parametrize("name", ["spans", "launches", "steps"])
def test_ranks_and_steps_can_be_chosen(run: Run, name: str) -> None:
    def chosen(**scope: Any) -> set[tuple[Any, ...]]:
        return set(rows(run.table(name, **scope), "rank", "step"))

    assert chosen() == {(0, 0), (0, 2), (1, 0)}
    assert chosen(rank=0) == {(0, 0), (0, 2)}
    assert chosen(step=0) == {(0, 0), (1, 0)}
    assert chosen(rank=[0, 1], step=range(1, 5)) == {(0, 2)}
    assert chosen(rank=[]) == set()
    with pytest.raises(AnalysisError, match="has none of the steps that were asked for on these ranks"):
        chosen(step=1)
    with pytest.raises(AnalysisError, match="has no rank 7; it has 0, 1"):
        chosen(rank=7)


def test_a_large_run_is_not_read_by_accident(run: Run) -> None:
    with pytest.raises(AnalysisError) as refused:
        run.table("spans", most_rows=5)
    assert str(refused.value) == "that is 6 spans, more than 5: choose ranks or steps, or give most_rows=None"
    assert run.table("spans", most_rows=5, rank=0).num_rows == 5
    assert run.table("spans", most_rows=None).num_rows == 6


def test_another_table_is_refused_by_name(run: Run) -> None:
    with pytest.raises(
        AnalysisError, match="there is no table 'span': there are spans, launches, steps, jobs"
    ):
        run.table("span")


def test_what_was_never_stamped_is_null(tmp_path: Path) -> None:
    slots, header = np.zeros((1, 4), dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    table = JobTable("one", 1, 4, (Job("a", "a", "compute", "all", (0, 0), (0,), None),), (0, -1), (0, -1))
    silent = LaunchStamps(0, 0, slots, header, epochs=np.zeros(1, dtype=np.uint32))
    run = open_run(build_run(tmp_path / "run", {0: [silent]}, table, 1))
    assert rows(run.table("launches"), "begin_ns", "end_ns", "dur_ns", "from_step_ns", "gap_ns") == [
        (None,) * 5
    ]
    assert rows(run.table("steps"), "begin_ns", "end_ns", "dur_ns") == [(None,) * 3]
    assert run.table("spans").num_rows == 0


def test_jobs_that_the_table_does_not_have_are_shown_by_number(tmp_path: Path) -> None:
    slots = np.array([[9_000_000_000, 9_000_000_009, 9_000_000_001, 9_000_000_003]], dtype=np.uint64)
    table = JobTable("one", 1, 4, (Job("a", "a", "compute", "all", (0, 0), (0,), None),), (0, -1), (0, -1))
    launch = LaunchStamps(0, 0, slots, slots[:, 0])
    spans = open_run(build_run(tmp_path / "run", {0: [launch]}, table, 1)).table("spans")
    assert rows(spans, "job", "op", "kind", "dur_ns") == [
        ("a", "a", "compute", 9),
        ("job#32769", "unknown", "compute", 2),
    ]


def test_iterations_and_payloads_are_columns_where_jobs_have_them(tmp_path: Path) -> None:
    job = Job("a", "a", "compute", "all", (0, 0), (0,), None, iterations=2, payload=True)
    table = JobTable("two", 1, 8, (job,), (0, 0, 0, 0), (0,) * 4, (0, 0, 1, 1), (False, True, False, True))
    at = 9_000_000_000
    slots = np.array([[at, at + 5, 77, 1, at + 6, at + 9, 0, 0]], dtype=np.uint64)
    launch = LaunchStamps(0, 0, slots, slots[:, 0])
    spans = open_run(build_run(tmp_path / "run", {0: [launch]}, table, 1)).table("spans")
    assert rows(spans, "iteration", "payload", "dur_ns") == [(0, 77, 5), (1, None, 3)]


def test_opening_a_run_loads_neither_torch_nor_cuda(tmp_path: Path) -> None:
    build_decode_steps(tmp_path / "run")
    code = (
        "import sys, musetrace; musetrace.open('run').table('spans');"
        "print([name for name in ('torch', 'musetrace._cuda', 'plotly', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def recipes() -> list[str]:
    """The Python blocks of the page."""
    return [part.split("```")[0] for part in PAGE.read_text(encoding="utf-8").split("```python\n")[1:]]


def imported(code: str) -> list[str]:
    found = [node for node in ast.parse(code).body if isinstance(node, ast.Import)]
    return [alias.name.split(".")[0] for node in found for alias in node.names]


def test_the_page_has_a_recipe_for_each_library() -> None:
    libraries = {name for code in recipes() for name in imported(code)}
    assert {"pyarrow", "pandas", "polars", "duckdb"} <= libraries


@pytest.mark.parametrize("code", recipes(), ids=[" ".join(imported(code)) for code in recipes()])
def test_the_recipes_of_the_page_run(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = [name for name in imported(code) if find_spec(name) is None]
    if lacking:
        pytest.skip(f"{', '.join(lacking)} is not installed")
    build_decode_steps(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "recipe"})
    assert len(capsys.readouterr().out) > 100


def test_the_table_gives_what_the_analysis_gives(tmp_path: Path) -> None:
    run = open_run(build_decode_steps(tmp_path / "run"))
    spans = run.table("spans").to_pylist()
    for row in analysis.op_timeline(run, layer_kind="sliding").to_pylist():
        begins: dict[tuple[int, ...], int] = {}
        for x in spans:
            if (x["launch_kind"], x["op"], x["kind"]) == ("sliding", row["op"], row["kind"]):
                key = (x["rank"], x["step"], x["launch"], x["block"])
                begins[key] = min(begins.get(key, x["from_launch_ns"]), x["from_launch_ns"])
        assert sorted(begins.values())[(len(begins) - 1) // 2] == row["begin_p50_ns"]
