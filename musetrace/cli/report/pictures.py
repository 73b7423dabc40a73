"""The pictures of a report. Figures, and plotly with them, are loaded when one is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.paths.critical_spans import critical_spans
from musetrace.analysis.spans.run_like import RunLike
from musetrace.cli.report.answers import Answers
from musetrace.cli.report.document import Picture
from musetrace.wording.idle_words import cause_words

# So many spans are some 700 kB of the file; of a launch that has more, every k-th block is shown.
_MOST_SPANS = 16_000
# A float32 has 24 bits: half a ns at most is lost below this.
_EXACT_US = 2.0**24 / 1000

_TIMELINE = (
    "bar: median begin to median end; whiskers: p10 to p90 of both; numbers: stops between ranks; "
    "in brackets: blocks, where not all run it"
)


def timeline_picture(answers: Answers, kind: str, table: pa.Table) -> Picture:
    """The op timeline of a kind of launch."""
    stops = list(stop_jobs(answers.run.job_table))

    def draw(theme_name: str) -> Any:
        from musetrace.figures.op_timeline import op_timeline_figure

        return op_timeline_figure(table, stops, theme_name)

    return Picture(f"timeline-{answers.kinds.index(kind)}", _TIMELINE, draw)


def causes_picture(table: pa.Table) -> Picture:
    """The causes of idle time over a step."""

    def draw(theme_name: str) -> Any:
        from musetrace.figures.idle_causes import idle_causes_figure

        return idle_causes_figure(table, cause_words, theme_name)

    caption = "idle time of an average block by cause, over a step; waits are hatched"
    return Picture("causes", caption, draw, has_kinds=False)


def launch_picture(answers: Answers) -> list[Picture]:
    """Every span of one launch: of the kind that takes the most time, in the middle of the steps in scope."""
    chosen = typical_launch(answers)
    if chosen is None:
        return []

    def draw(theme_name: str) -> Any:
        from musetrace.figures.block_lanes import block_lanes_figure
        from musetrace.figures.lane_spans import LaneChoice, lane_spans

        choice = LaneChoice(answers.scope.rank)
        spans = lane_spans(answers.run, chosen.step, chosen.launch, choice, most_spans=_MOST_SPANS)
        figure = block_lanes_figure(spans, theme_name)
        for trace in figure.data:
            _shorten(trace)
        return figure

    caption = (
        f"every span of one launch, a row for each block; of a very large one, for every k-th: {chosen.words}"
    )
    return [Picture("launch", caption, draw, has_kinds=False)]


def path_picture(answers: Answers, kind: str) -> list[Picture]:
    """The critical path of the launch that is drawn span by span, if it is of this kind."""
    chosen = typical_launch(answers)
    if chosen is None or chosen.kind != kind:
        return []

    def draw(theme_name: str) -> Any:
        from musetrace.figures.critical_bar import critical_bar_figure

        spans = critical_spans(answers.run, step=chosen.step, launch=chosen.launch, rank=answers.scope.rank)
        return critical_bar_figure(spans, theme_name)

    return [Picture("path", f"what the end of one launch waited for: {chosen.words}", draw)]


def _shorten(trace: Any) -> None:
    """Half the bytes of a trace, as far as a time stays exact to the ns."""
    x, y = np.asarray(trace.x), np.asarray(trace.y)
    if x.dtype == np.float64 and len(x) and np.abs(x).max() < _EXACT_US:
        rows = y.astype(np.int16)
        # What equals the old values would not be taken in their place.
        trace.update(x=None, y=None)
        trace.update(x=x.astype(np.float32), y=rows if (rows == y).all() else y.astype(np.float32))


@dataclass(frozen=True)
class DrawnLaunch:
    """A launch by its kind, step and number in it, and in words."""

    kind: str
    step: int
    launch: int
    words: str


def typical_launch(answers: Answers) -> DrawnLaunch | None:
    """The launch that is drawn; None where none was stamped."""
    times = {row["kind"]: row["n"] * (row["launch_mean_ns"] or 0) for row in answers.launches.to_pylist()}
    if not times:
        return None
    kind, scope = max(times, key=times.__getitem__), answers.scope
    ranks = answers.run.ranks if scope.rank is None else (scope.rank,)
    found = [row for rank in ranks for row in _stamped(answers.run, rank, kind, scope.step)]
    steps = sorted({row["step"] for row in found})
    in_step = sorted((row["launch"], row["layer"]) for row in found if row["step"] == steps[len(steps) // 2])
    launch, layer = in_step[len(in_step) // 2]
    step = steps[len(steps) // 2]
    where = f"layer {layer}, " if layer >= 0 and not answers.kernels else ""
    return DrawnLaunch(kind, step, launch, f"{where}launch {launch} of step {step}")


def _stamped(run: RunLike, rank: int, kind: str, step: int | None) -> list[dict[str, Any]]:
    rows = run.launches(rank).select(["step", "launch", "layer", "kind", "begin_ns"]).to_pylist()
    return [row for row in rows if row["begin_ns"] and row["kind"] == kind and step in (None, row["step"])]
