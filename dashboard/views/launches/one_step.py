"""One step as a strip on the device's clock and on the host's, and where a click on a launch leads."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis import (
    alignment_error_ns,
    has_several_clocks,
    tick_ns,
)
from musetrace.analysis.certainty.clock_quality import combined_ns
from musetrace.analysis.timeline.one_step import launches_of_step, typical_step
from musetrace.dashboard.address import address
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.scope import ALL, Scope
from musetrace.dashboard.views.span_quality import nothing_stamped, observed_words
from musetrace.figures.blank import sentence_figure
from musetrace.figures.step_strip import MOST_RANKS, host_strip_figure, step_strip_figure
from musetrace.figures.wording import aligned_words, exact_ns, many, plus_minus


def shown_step(run: RecordedRun, scope: Scope) -> int | None:
    """The step that the strip shows: the chosen one, or a typical one."""
    of = scope.arguments
    return typical_step(run, of["rank"]) if of["step"] is None else of["step"]


def draw_step(run: RecordedRun, scope: Scope, theme_name: str) -> tuple[go.Figure, str, go.Figure | None]:
    """One step as a strip, the note above it, and the same on the host's clock where that was recorded."""

    def draw() -> tuple[go.Figure, str, go.Figure | None]:
        step = shown_step(run, scope)
        if step is None:
            return sentence_figure("This run has no step yet.", theme_name), "", None
        table = launches_of_step(run, step=step, rank=scope.arguments["rank"])
        rows = table.to_pylist()
        if not rows:
            return (
                sentence_figure(nothing_stamped(run), theme_name),
                f"step {step}: no launch of it is here",
                None,
            )
        host = any(row["host_step_ns"] is not None for row in rows)
        picked = None if scope.kind == ALL else scope.kind
        stamped = any(row["begin_ns"] is not None for row in rows)
        strip = step_strip_figure if stamped else None
        return (
            strip(table, picked, theme_name) if strip else sentence_figure(nothing_stamped(run), theme_name),
            step_note(run, step, table),
            host_strip_figure(table, theme_name) if host else None,
        )

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), "", None))


def step_note(run: RecordedRun, step: int, table: pa.Table) -> str:
    """How many launches the step has, how long it lasts by each clock, and how ranks are placed."""
    rows = table.to_pylist()
    ranks = list(dict.fromkeys(row["rank"] for row in rows))
    counts = sorted({sum(row["rank"] == rank for row in rows) for rank in ranks})
    several = (
        f"{counts[0]:,} to {counts[-1]:,} launches"
        if len(counts) > 1
        else many(counts[0], "launch", "launches")
    )
    parts = [f"step {step}: {several}{' a rank' if len(ranks) > 1 else ''}"]
    ends = [row["end_ns"] for row in rows if row["end_ns"] is not None]
    if ends:
        apart = 0 if len(ranks) == 1 else alignment_error_ns(run)
        off = plus_minus(combined_ns(tick_ns(run), apart))
        parts.append(f"{exact_ns(max(ends))} ns {off} on the device")
    overlapping = [
        row for row in rows if (row["gap_ns"] or 0) < 0 and row["gap_ns"] <= -(row["uncertainty_ns"] or 0)
    ]
    if ends:
        number = f"{len(overlapping):,}" if overlapping else "none"
        parts.append(f"{number} still under way when the next begins")
    if len(ranks) > 1 and has_several_clocks(run):
        parts.append(aligned_words(alignment_error_ns(run)))
    if len(ranks) > MOST_RANKS:
        parts.append(f"the first {MOST_RANKS} of {len(ranks):,} ranks are drawn")
    return "; ".join([*parts, *observed_words(table)])


def clicked_launch(click: object, run_index: int) -> str | None:
    """Where the timeline shows the launch that was clicked on, a tenth of it around; None for no launch."""
    points = click.get("points") if isinstance(click, Mapping) else None
    data = points[0].get("customdata") if points and isinstance(points[0], Mapping) else None
    if not isinstance(data, list) or len(data) != 4 or not all(type(one) is int for one in data[1:]):  # noqa: PLR2004
        return None
    _, rank, begin, end = data
    around = (end - begin) // 10 + 1
    window = {"from": max(begin - around, 0), "to": end + around}
    return address("timeline", run_index, ranks=rank, **window)
