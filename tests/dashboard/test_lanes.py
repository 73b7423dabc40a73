"""The lanes of one launch: which spans, in which rows, drawn how; against a slow reading of the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from builders import build_run_from_text
from hypothesis import strategies as st

from musetrace.errors import AnalysisError
from musetrace.figures.block_lanes import MOST_BARS, block_lanes_figure, extent_of
from musetrace.figures.lane_spans import JobName, Lane, LaneChoice, LaneSpans, lane_spans
from musetrace.store import Run, open_run
from tests.clock_runs import PEER, build_run_of_two_clocks

Row = tuple[int, int, int, int, int, int]  # rank, block, warp, job, begin, end


def slow_spans(run: Run, step: int, launch: int, ranks: tuple[int, ...], block: int | None) -> list[Row]:
    """The launch's spans from its earliest begin on these ranks, row by row."""
    absolute = []
    origins = []
    for rank in ranks:
        base = next(one["base_ns"] for one in run.steps(rank).to_pylist() if one["step"] == step)
        of_step = [one for one in run.launches(rank).to_pylist() if one["step"] == step]
        origins.append(next(one["begin_ns"] for one in of_step if one["launch"] == launch))
        for one in run.spans(rank, step).to_pylist():
            if one["launch"] == launch and one["flag"] == 0 and block in (None, one["block"]):
                begin = base + one["begin"]
                absolute.append((rank, one["block"], one["warp"], one["job"], begin, begin + one["dur"]))
    origin = min(origins)
    return sorted((*place, begin - origin, end - origin) for *place, begin, end in absolute)


def rows_of(spans: LaneSpans) -> list[Row]:
    columns = zip(spans.row, spans.warp, spans.job, spans.begin_ns, spans.end_ns, strict=True)
    return sorted(
        (spans.lanes[row].rank, spans.lanes[row].block, *map(int, (warp, job, begin, end)))
        for row, warp, job, begin, end in columns
    )


@pytest.mark.parametrize("choice", [LaneChoice(), LaneChoice(1), LaneChoice(0, 2), LaneChoice(1, 0)])
@pytest.mark.parametrize("launch", [0, 3])
def test_the_lanes_hold_the_spans_of_the_store(decode: Run, choice: LaneChoice, launch: int) -> None:
    spans = lane_spans(decode, 1, launch, choice)
    ranks = decode.ranks if choice.rank is None else (choice.rank,)
    assert rows_of(spans) == slow_spans(decode, 1, launch, ranks, choice.block)
    assert np.all(np.diff(spans.row) >= 0)
    assert spans.flagged == 0


def test_a_row_is_a_block_of_a_rank_or_a_warp_of_a_block(decode: Run) -> None:
    blocks = lane_spans(decode, 0, 1, LaneChoice())
    assert blocks.lanes == tuple(Lane(rank, block, None) for rank in (0, 1) for block in range(4))
    warps = lane_spans(decode, 0, 1, LaneChoice(1, 3))
    stamping = sorted({warp for job in decode.job_table.jobs for warp in job.stamped_by})
    assert warps.lanes == tuple(Lane(1, 3, warp) for warp in stamping)
    assert all(warps.lanes[row].warp == warp for row, warp in zip(warps.row, warps.warp, strict=True))


def test_spans_of_a_warp_that_begin_together_stay_in_the_order_of_their_slots(tmp_path: Path) -> None:
    jobs = ("attention_compute", "attention_merge", "stop1_norm")
    ends = (64, 32, 32)  # the second has no length
    lines = [f"r0 s0 l0 layer=0 sliding b0 w4 {job} 32 {end}" for job, end in zip(jobs, ends, strict=True)]
    run = open_run(build_run_from_text(tmp_path, "\n".join(reversed(lines)), blocks=1))
    for choice in (LaneChoice(), LaneChoice(0, 0)):
        spans = lane_spans(run, 0, 0, choice)
        assert [spans.names[int(job)].job for job in spans.job] == list(jobs)
        assert (
            sum(len(trace.x) for trace in block_lanes_figure(spans, "light").data if trace.type == "bar") == 3
        )


def test_too_many_spans_leave_out_whole_blocks_and_say_so(decode: Run) -> None:
    everything = lane_spans(decode, 0, 1, LaneChoice())
    some = lane_spans(decode, 0, 1, LaneChoice(), most_spans=len(everything.job) // 2)
    assert some.stride == 2
    kept = [row for row in rows_of(everything) if row[1] % 2 == 0]
    assert rows_of(some) == kept


def test_ranks_of_several_clocks_stand_on_one_axis_and_the_error_is_said(tmp_path: Path) -> None:
    run = open_run(build_run_of_two_clocks(tmp_path, {"peer": PEER}, peer_at_end=True))
    spans = lane_spans(run, 0, 0, LaneChoice())
    assert spans.origin_ns == 10_000
    assert rows_of(spans) == sorted(
        (rank, 0, warp, int(job), begin, end)
        for rank, sent in enumerate((1_000, 8_000, 2_000))
        for warp, job, begin, end in ((3, spans.job[0], 0, sent), (4, spans.job[1], sent, 9_000))
    )
    assert spans.apart_ns == 601
    own, against = (f"\N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}{ns} ns" for ns in (32, 32 + 601))
    alone = lane_spans(run, 0, 0, LaneChoice(2))
    assert (alone.origin_ns, alone.apart_ns) == (10_000, 0)


def test_ranks_that_are_not_aligned_are_said_to_be_so(tmp_path: Path) -> None:
    run = open_run(build_run_of_two_clocks(tmp_path, {}, host="there"))
    spans = lane_spans(run, 0, 0, LaneChoice())
    assert spans.apart_ns is None


def test_a_launch_that_nobody_stamped_is_refused_in_one_sentence(decode: Run) -> None:
    with pytest.raises(AnalysisError, match="launch 99 of step 0 left no stamps on any rank"):
        lane_spans(decode, 0, 99, LaneChoice())


def made(rows: list[tuple[int, int, int, str]], lanes: int = 3, per_warp: bool = False) -> LaneSpans:
    """Lanes of (row, begin, end, kind)."""
    rows = sorted(rows)
    kinds = sorted({kind for *_, kind in rows})
    row, begin, end = (np.array([one[i] for one in rows], dtype=np.int64) for i in range(3))
    return LaneSpans(
        lanes=tuple(Lane(0, number, 0 if per_warp else None) for number in range(lanes)),
        per_warp=per_warp,
        origin_ns=0,
        row=row,
        begin_ns=begin,
        end_ns=end,
        warp=np.zeros(len(rows), dtype=np.int64),
        job=np.array([kinds.index(kind) for *_, kind in rows], dtype=np.int64),
        names={number: JobName(f"a_{kind}", "a", kind) for number, kind in enumerate(kinds)},
        uncertainty_ns=32,
        below_tick=0,
        flagged=0,
        stride=1,
    )


def bars(figure: go.Figure) -> list[tuple[str, float, float, float]]:
    return [
        (trace.name, float(base), float(length), float(y))
        for trace in figure.data
        if trace.type == "bar"
        for base, length, y in zip(trace.base, trace.x, trace.y, strict=True)
    ]


def test_few_spans_are_bars_at_their_time_in_their_row() -> None:
    figure = block_lanes_figure(made([(0, 1_000, 3_500, "compute"), (2, 4_000, 4_001, "load")]), "light")
    top, bottom = extent_of("compute", made([]))
    found = {name: rest for name, *rest in bars(figure)}
    assert found["compute"] == [1.0, 2.5, pytest.approx((top + bottom) / 2)]
    assert found["load"][:2] == [4.0, pytest.approx(0.001)]
    assert found["load"][2] == pytest.approx(2 + sum(extent_of("load", made([]))) / 2)


@pytest.mark.parametrize(("spans", "kind"), [(MOST_BARS, "bar"), (MOST_BARS + 1, "scatter")])
def test_combs_take_over_above_the_limit(spans: int, kind: str) -> None:
    figure = block_lanes_figure(made([(i % 3, 10 * i, 10 * i + 9, "compute") for i in range(spans)]), "dark")
    drawn = next(trace for trace in figure.data if trace.name == "compute")
    assert drawn.type == kind
    if kind == "scatter":
        assert drawn.fill == "toself"
        assert drawn.line.simplify is False
        assert len(drawn.x) == 4 * spans + 2 * 3 + 1


def test_every_kind_is_drawn_and_strips_of_a_row_do_not_overlap(decode: Run) -> None:
    spans = lane_spans(decode, 0, 1, LaneChoice(0))
    figure = block_lanes_figure(spans, "light")
    kinds = {name.kind for name in spans.names.values()}
    assert kinds <= {trace.name for trace in figure.data}
    strips = sorted({extent_of(kind, spans) for kind in kinds})
    assert all(above[1] < below[0] for above, below in zip(strips, strips[1:], strict=False))


def test_labels_do_not_overlap_and_are_shorter_than_their_span(decode: Run) -> None:
    spans = lane_spans(decode, 0, 1, LaneChoice(0, 0))
    labels = next(trace for trace in block_lanes_figure(spans, "light").data if trace.name == "ops")
    middles = {(float(y), float(x)) for x, y in zip(labels.x, labels.y, strict=True)}
    assert len(middles) == len(labels.x) > 3
    assert "attention" in labels.text


spans_in_rows = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 40), st.integers(0, 9), st.sampled_from(["load", "compute", "wait"])
    ),
    max_size=12,
)
