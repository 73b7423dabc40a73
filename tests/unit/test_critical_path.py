"""Critical paths and what-ifs of programs whose answer is known, and what holds of every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from musetrace import analysis
from musetrace.errors import AnalysisError, UsageError
from musetrace.job_table import Job, JobTable
from tests.unit.analysis_oracle import aligned, in_scope
from tests.unit.analysis_traces import questions
from tests.unit.fake_run import FakeRun, Launch, Span

A, WAIT_A, B, WAIT_B, C, LOAD, WAIT_LOAD, USE, SEND, STOP, NORM = range(11)
TABLE_JOBS = [
    ("a_compute", "a", "compute", None),
    ("b_wait_a", "b", "wait", A),
    ("b_compute", "b", "compute", None),
    ("c_wait_b", "c", "wait", B),
    ("c_compute", "c", "compute", None),
    ("use_load", "use", "load", None),
    ("use_wait_load", "use", "wait", LOAD),
    ("use_compute", "use", "compute", None),
    ("x_send", "x", "send", None),
    ("stop1_wait_ranks", "stop1", "wait", SEND),
    ("stop1_norm", "stop1", "compute", None),
]


def table() -> JobTable:
    jobs = tuple(
        Job(
            name,
            op,
            kind,
            role="loader" if kind == "load" else "all",
            warps=(0, 0),
            stamped_by=(0,),
            awaits=of,
        )
        for name, op, kind, of in TABLE_JOBS
    )
    pairs = tuple(range(len(jobs)))
    return JobTable("known", 1, 2 * len(pairs), jobs, pairs, (0,) * len(pairs))


def span(
    job: int, begin: int, end: int, *, block: int = 0, warp: int = 0, rank: int = 0, launch: int = 0
) -> Span:
    return Span(rank, 0, launch, block, job, begin, end - begin, warp=warp)


def run_of(*spans: Span, blocks: int = 1, ranks: tuple[int, ...] = (0,), **more: Any) -> FakeRun:
    """One launch, from 0 (1 in the store: 0 means unstamped) to the last end on each rank."""
    ends = {rank: max(x.begin + x.dur for x in spans if x.rank == rank) for rank in ranks}
    found = [Launch(rank, 0, 0, 0, "sliding", 0, ends[rank], blocks) for rank in ranks]
    return FakeRun(found, spans, blocks, ranks, job_table=table(), **more)


def parts(path: analysis.CriticalPath) -> dict[tuple[str | None, str], int]:
    return {(row["op"], row["kind"]): row["total_ns"] for row in path.parts.to_pylist()}


def saved(run: FakeRun, *changes: str, **scope: Any) -> list[int]:
    return [row["saved_mean_ns"] for row in analysis.what_if(run, changes, **scope).to_pylist()]


def test_a_chain_is_its_own_path() -> None:
    run = run_of(span(A, 5, 15), span(B, 18, 38))
    path = analysis.critical_path(run)
    assert parts(path) == {("a", "compute"): 10, ("b", "gap"): 3, ("b", "compute"): 20, (None, "head"): 5}
    assert (path.length_ns, path.n, path.of_n, path.edges.num_rows) == (38, 1, 1, 0)
    assert saved(run, "a=0", "b=-10%", "b=+50%", "a_compute=-50%") == [10, 2, -10, 5]


def test_a_fork_is_joined_by_its_longer_side() -> None:
    run = run_of(
        span(A, 0, 10),
        span(C, 10, 30),
        span(WAIT_B, 30, 52),
        span(NORM, 52, 60),
        span(WAIT_A, 0, 11, warp=1),
        span(B, 11, 51, warp=1),
    )
    path = analysis.critical_path(run)
    assert parts(path) == {
        ("a", "compute"): 10,
        ("b", "wait"): 1,
        ("b", "compute"): 40,
        ("c", "wait"): 1,
        ("stop1", "compute"): 8,
    }
    edges = [(row["from_job"], row["job"], row["how"], row["hop_total_ns"]) for row in path.edges.to_pylist()]
    assert edges == [("a_compute", "b_wait_a", "way", 1), ("b_compute", "c_wait_b", "way", 1)]
    # Without b, c is done at 30 and the wait still costs the 1 ns that it took behind b.
    assert saved(run, "a=0", "b=0", "c=0", "stop1=0", "b_wait_a=gone") == [10, 21, 0, 8, 11]


def test_a_flag_between_blocks_takes_the_path_to_the_other_block() -> None:
    run = run_of(span(A, 0, 100), span(WAIT_A, 5, 103, block=1), span(B, 103, 150, block=1), blocks=2)
    path = analysis.critical_path(run)
    assert parts(path) == {("a", "compute"): 100, ("b", "wait"): 3, ("b", "compute"): 47}
    (edge,) = path.edges.to_pylist()
    assert (edge["n"], edge["other_block_n"], edge["other_rank_n"], edge["hop_p50_ns"]) == (1, 1, 0, 3)
    # Gone, b ends at 52, and the launch with a, at 100. Without a, the wait takes 3 from 5 on.
    assert saved(run, "b_wait_a=gone", "a=0", "a=-10%") == [50, 95, 10]


def test_a_wait_whose_producer_was_ready_costs_its_own_time() -> None:
    run = run_of(span(A, 0, 10), span(WAIT_A, 12, 20), span(B, 20, 30))
    path = analysis.critical_path(run)
    assert parts(path) == {("a", "compute"): 10, ("b", "gap"): 2, ("b", "wait"): 8, ("b", "compute"): 10}
    assert path.edges.num_rows == 0
    assert saved(run, "a=0", "b_wait_a=gone") == [10, 8]


def test_a_ring_of_loads_runs_ahead_of_its_use() -> None:
    run = run_of(span(LOAD, 0, 40, warp=1), span(WAIT_LOAD, 0, 10), span(USE, 10, 60))
    assert parts(analysis.critical_path(run)) == {("use", "load"): 10, ("use", "compute"): 50}
    # The load ends 20 before its use does, whatever it takes; the first piece is there after a quarter of it.
    assert saved(run, "use_compute=-50%", "use_load=0", "use=0") == [25, 10, 60]


def test_pieces_are_followed_to_the_end_of_what_makes_them() -> None:
    # Two pieces of 20 each; what takes them needs 5 for each, and waits in between.
    run = run_of(span(B, 0, 40), span(WAIT_B, 0, 20, warp=1), span(C, 20, 45, warp=1))
    path = analysis.critical_path(run)
    assert parts(path) == {("b", "compute"): 40, ("c", "compute"): 5}
    assert [row["how"] for row in path.edges.to_pylist()] == ["last_piece"]
    assert saved(run, "b=-50%") == [20]


def test_a_slow_rank_is_on_the_path_of_all_with_the_error_of_its_clock() -> None:
    # Rank 1's step begins 2 ns later than rank 0's.
    spans = [
        span(SEND, 0, 20),
        span(STOP, 20, 75),
        span(NORM, 75, 85),
        span(A, 0, 48, rank=1),
        span(SEND, 48, 68, rank=1),
        span(STOP, 68, 72, rank=1),
        span(NORM, 72, 82, rank=1),
    ]
    run = run_of(*spans, ranks=(0, 1))
    path = analysis.critical_path(run)
    assert parts(path) == {
        (None, "head"): 2,
        ("a", "compute"): 48,
        ("x", "send"): 20,
        ("stop1", "wait"): 5,
        ("stop1", "compute"): 10,
    }
    (edge,) = path.edges.to_pylist()
    assert (edge["other_rank_n"], edge["hop_total_ns"], edge["hop_total_uncertainty_ns"]) == (1, 5, 1)
    # Nobody waits: rank 0 is done at 30, rank 1 at 2 + 78.
    assert saved(run, "stop1=gone", "a=0", "a=-50%") == [5, 48, 24]
    clocks = {
        rank: {"clock": rank, "method": "m", "error_ns": 7 * rank, "measured_at_ns": [0], "offsets_ns": [0]}
        for rank in (0, 1)
    }
    path = analysis.critical_path(run_of(*spans, ranks=(0, 1), alignment=clocks))
    (edge,) = path.edges.to_pylist()
    assert (edge["hop_total_ns"], edge["hop_total_uncertainty_ns"], edge["hop_uncertainty_ns"]) == (5, 8, 8)
    only = analysis.critical_path(run, rank=1)
    assert parts(only) == {
        (None, "head"): 2,
        ("a", "compute"): 48,
        ("x", "send"): 20,
        ("stop1", "wait"): 4,
        ("stop1", "compute"): 10,
    }


def test_ranks_that_are_not_aligned_have_paths_of_their_own() -> None:
    clocks = {
        rank: {
            "clock": rank,
            "method": "unknown",
            "error_ns": 0 if rank == 0 else None,
            "measured_at_ns": [0],
        }
        for rank in (0, 1)
    }
    alignment = {rank: {**told, "offsets_ns": [0]} for rank, told in clocks.items()}
    spans = [span(SEND, 0, 20), span(STOP, 20, 75), span(SEND, 0, 70, rank=1), span(STOP, 70, 73, rank=1)]
    path = analysis.critical_path(run_of(*spans, ranks=(0, 1), alignment=alignment))
    assert (path.n, path.length_ns) == (2, 75 + 73)
    assert [row["other_rank_n"] for row in path.edges.to_pylist()] == [0] * path.edges.num_rows


def test_launches_of_a_step_follow_each_other_and_overlap() -> None:
    """The second launch begins 10 before the end of the first; its first warp works before that end."""
    launches = [
        Launch(0, 0, 0, 0, "sliding", 1, 50, 1),
        Launch(0, 0, 1, 1, "sliding", 40, 90, 1),
        Launch(0, 0, 2, 2, "sliding", 96, 120, 1),
    ]
    spans = [
        span(A, 1, 50),
        span(A, 42, 46, launch=1),
        span(B, 53, 90, launch=1),
        span(A, 100, 120, launch=2),
    ]
    run = FakeRun(launches, spans, 1, (0,), job_table=table())
    path = analysis.critical_path(run)
    assert parts(path) == {
        ("a", "compute"): 49 + 20,
        ("b", "compute"): 37,
        (None, "before"): 10,
        (None, "launch_way"): 3,
        (None, "head"): 4,
    }
    assert path.length_ns == 49 + 50 + 24
    step = analysis.critical_path(run, whole_steps=True)
    assert parts(step) == {
        ("a", "compute"): 49 + 20,
        ("b", "compute"): 37,
        (None, "launch_way"): 3,
        (None, "head"): 4,
        (None, "between"): 6,
    }
    assert (step.n, step.length_ns) == (1, 119)


def test_the_path_of_one_launch_span_by_span() -> None:
    run = run_of(span(A, 5, 100), span(WAIT_A, 6, 103, block=1), span(B, 104, 150, block=1), blocks=2)
    rows = analysis.critical_spans(run, step=0, launch=0).to_pylist()
    told = [(row["how"], row["job"], row["block"], row["begin_ns"], row["dur_ns"]) for row in rows]
    assert told == [
        ("head", None, None, 0, 5),
        ("own", "a_compute", 0, 5, 95),
        ("way", "b_wait_a", 1, 100, 3),
        ("gap", "b_compute", 1, 103, 1),
        ("own", "b_compute", 1, 104, 46),
    ]
    assert (rows[2]["from_job"], rows[2]["from_block"], rows[2]["span_begin_ns"]) == ("a_compute", 0, 6)
    stored = run.spans(0, 0).column("job").to_pylist()
    assert [None if row["span"] is None else stored[row["span"]] for row in rows] == [None, A, WAIT_A, B, B]
    assert {(row["step"], row["launch"]) for row in rows} == {(0, 0)}
    with pytest.raises(AnalysisError, match="step 0 has no launch 4 that left a stamp"):
        analysis.critical_spans(run, step=0, launch=4)


def test_what_ifs_are_ranked_and_told_with_what_the_clock_leaves_open() -> None:
    run = run_of(span(A, 0, 640), span(B, 640, 704), span(C, 704, 768), tick_ns=32)
    rows = analysis.what_ifs(run).to_pylist()
    assert [row["change"] for row in rows][:3] == ["a=0", "b=0", "c=0"]  # b and c cannot be told apart
    first = rows[0]
    assert (first["saved_mean_ns"], first["saved_mean_uncertainty_ns"]) == (640, 64)
    assert (first["n"], first["of_n"], first["residual_ns"], first["on_path_mean_ns"]) == (1, 1, 0, 640)
    assert {row["how"] for row in rows} == {"zero", "faster"}


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("gem=0", AnalysisError, "no op or job 'gem' in this run: it has a, b, c, use, x, stop1"),
        ("use_lod=0", AnalysisError, "no op or job 'use_lod' in this run: did you mean use_load"),
        ("a", UsageError, "what if 'a': say NAME=0, NAME=-10% or NAME=gone"),
        ("a=10", UsageError, "what if 'a=10': say"),
        ("a=-200%", UsageError, "the time of an op changes by -100 % to "),
        ("a=gone", AnalysisError, "a has no waits that could be gone: say a=0 or a=-10%"),
        ("b_wait_a=0", AnalysisError, "b_wait_a has nothing but waits, which take the time of others"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_in_one_line(
    text: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as found:
        analysis.what_if(run_of(span(A, 0, 10)), [text])
    assert says in str(found.value)
    assert "\n" not in str(found.value)


def test_changes_made_together_are_one_replay() -> None:
    run = run_of(
        span(A, 0, 100), span(C, 0, 90, block=1), span(WAIT_A, 5, 103, block=1, warp=1),
        span(B, 103, 150, block=1, warp=1), blocks=2, tick_ns=32,
    )  # fmt: skip
    changes = ["a=-50%", "b=-10%", "c=-50%"]
    (row,) = analysis.what_if(run, changes, together=True).to_pylist()
    # a ends at 50, its wait at 53, b 42.3 later; c, at 45, is in nobody's way.
    assert (row["new_mean_ns"], row["saved_mean_ns"]) == (95, 55)
    assert (row["change"], row["target"], row["how"]) == ("a=-50%, b=-10%, c=-50%", None, "together")
    assert row["on_path_mean_ns"] == 147
    # Half a tick of a, a tenth of b, none of c, which is not on the path; and a tick of the last end.
    assert row["saved_mean_uncertainty_ns"] == 16 + 4 + 32
    alone = analysis.what_if(run, ["b=-10%"]).to_pylist()
    assert analysis.what_if(run, ["b=-10%"], together=True).to_pylist() == alone
    (none,) = analysis.what_if(run, [], together=True).to_pylist()
    assert (none["change"], none["how"], none["saved_mean_ns"], none["length_mean_ns"]) == (
        "", "unchanged", 0, 150,
    )  # fmt: skip


def test_a_wait_may_go_with_its_stop_but_no_time_changes_twice() -> None:
    run = run_of(span(A, 0, 100), span(WAIT_A, 5, 103, block=1), span(B, 103, 150, block=1), blocks=2)
    both = analysis.what_if(run, ["b_wait_a=gone", "b=gone"], together=True).to_pylist()[0]
    (one,) = analysis.what_if(run, ["b_wait_a=gone"]).to_pylist()
    told = ("saved_mean_ns", "saved_mean_uncertainty_ns", "on_path_mean_ns")
    assert [both[name] for name in told] == [one[name] for name in told]
    with pytest.raises(UsageError, match="what if: b=0 and b_compute=-10% both change b_compute: give one"):
        analysis.what_if(run, ["b=0", "b_compute=-10%"], together=True)


def test_paths_of_a_bounded_number_of_spans_are_of_evenly_spread_launches_or_steps() -> None:
    steps, launches = 5, 3
    each = [(at, k) for at in range(steps) for k in range(launches)]
    # The step's number is in its length.
    found = [Launch(0, at, k, 0, "sliding", 100 * k, 100 * k + 50 + at, 1) for at, k in each]
    spans = [Span(0, at, k, 0, A, 100 * k, 50 + at) for at, k in each]
    run = FakeRun(found, spans, 1, (0,), job_table=table())
    told = [
        (path.n, path.of_n, path.length_ns)
        for whole in (True, False)
        for most in (2 * launches, 1)
        for path in [analysis.critical_path(run, most_spans=most, whole_steps=whole)]
    ]
    assert told[:2] == [(2, 5, 251 + 253), (1, 5, 252)]
    assert [of[:2] for of in told[2:]] == [(6, 15), (1, 15)]
    everything = analysis.critical_path(run, most_spans=10**9, whole_steps=True)
    assert everything.parts.equals(analysis.critical_path(run, whole_steps=True).parts)


@given(questions())
@settings(max_examples=120, deadline=None)
def test_every_step_of_a_path_names_its_span(question: tuple[FakeRun, dict[str, Any]]) -> None:
    run, scope = question
    spans = {
        (rank, step): run.spans(rank, step).to_pylist() for rank in run.ranks for step in run.step_ids(rank)
    }
    names = run.job_table
    for row in analysis.critical_spans(run, rank=scope["rank"], step=scope["step"]).to_pylist():
        if row["job"] is None:
            assert row["span"] is None
            continue
        span = spans[row["rank"], row["step"]][row["span"]]
        begin = run.base_ns(row["rank"], row["step"]) + span["begin"]
        first, last = (aligned(run, row["rank"], time) for time in (begin, begin + span["dur"]))
        told = [row[name] for name in ("job", "block", "warp", "launch", "span_dur_ns")]
        assert told == [
            names.job_name(span["job"]), span["block"], span["warp"], span["launch"], last - first,
        ]  # fmt: skip


@given(questions())
@settings(max_examples=120, deadline=None)
def test_the_parts_of_a_path_are_the_launch_and_an_unchanged_replay_is_exact(
    question: tuple[FakeRun, dict[str, Any]],
) -> None:
    run, scope = question
    path = analysis.critical_path(run, **scope)
    assert sum(row["total_ns"] for row in path.parts.to_pylist()) == path.length_ns
    everywhere = {"kind": scope["layer_kind"], "rank": None, "step": scope["step"]}
    launches, spans, ignored = in_scope(run, **everywhere)
    assert analysis.ignored_spans(path.parts) == ignored
    one_axis = all(told["error_ns"] is not None for told in run.alignment.values())
    steps = analysis.critical_path(run, **{**scope, "layer_kind": None}, whole_steps=True)
    assert sum(row["total_ns"] for row in steps.parts.to_pylist()) == steps.length_ns
    if one_axis and scope["rank"] is None:
        assert path.length_ns == lengths(run, launches, {(x.step, x.launch) for x in spans})
    if one_axis and scope["rank"] is None and scope["layer_kind"] is None:
        assert steps.length_ns == lengths(run, launches, {(x.step, None) for x in spans}, spans)
    for row in analysis.what_ifs(run, **scope).to_pylist():
        assert row["residual_ns"] == 0
        assert row["new_mean_ns"] <= row["length_mean_ns"]


def lengths(
    run: FakeRun,
    launches: dict[tuple[int, int, int], Launch],
    of: set[tuple[int, int | None]],
    with_spans: Sequence[Span] = (),
) -> int:
    """From the first begin to the last end, of launches or of steps: of these, launches with spans count."""
    seen, total = {(x.step, x.launch) for x in with_spans}, 0
    for step, launch in of:
        mine = [x for x in launches.values() if x.step == step and launch in (None, x.launch)]
        mine = [x for x in mine if launch is not None or (x.step, x.launch) in seen]
        total += max(max(when(run, x, "end") for x in mine) - min(when(run, x, "begin") for x in mine), 0)
    return total


def when(run: FakeRun, launch: Launch, side: str) -> int:
    return aligned(run, launch.rank, run.base_ns(launch.rank, launch.step) + int(getattr(launch, side)))


def test_an_empty_run_has_no_path() -> None:
    run = FakeRun([], [], blocks=4, ranks=())
    path = analysis.critical_path(run)
    assert (path.n, path.parts.num_rows, path.edges.num_rows) == (0, 0, 0)
    assert analysis.what_ifs(run).num_rows == 0
    assert analysis.critical_path(run, whole_steps=True).n == 0
    with pytest.raises(AnalysisError, match="no rank 7"):
        analysis.critical_path(run_of(span(A, 0, 10)), rank=7)
