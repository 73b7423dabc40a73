"""The op timelines of two runs, one above the other on one time axis."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from musetrace import analysis
from musetrace.analysis import below_tick_spans, ignored_spans
from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.span_quality import quality
from musetrace.errors import AnalysisError, MusetraceError
from musetrace.figures.blank import sentence_figure
from musetrace.figures.op_timeline import OpTimeline, op_timelines_figure


def draw_both(
    runs: OpenRuns, refs: Sequence[RunRef], scope: Scope, theme_name: str
) -> tuple[go.Figure, list[str]]:
    """The op timelines of A and B over a scope, and what is to be known of their spans.

    One sentence where a run does not have the scope, or no spans in it.
    """

    def draw() -> tuple[go.Figure, list[str]]:
        timelines = [_timeline(runs, ref, scope, letter) for letter, ref in zip("AB", refs, strict=True)]
        lacking = [of.title for of in timelines if not of.table.num_rows]
        if lacking:
            sentence = f"{' and '.join(lacking)} left no spans there, so there are no two timelines to draw."
            return sentence_figure(sentence, theme_name), []
        figure = op_timelines_figure(timelines, theme_name)
        figure.update_layout(uirevision=f"{scope} {refs}")
        notes = [
            f"{letter}: {note}"
            for letter, of in zip("AB", timelines, strict=True)
            for note in quality(ignored_spans(of.table), below_tick_spans(of.table))
        ]
        return figure, notes

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), []))


def _timeline(runs: OpenRuns, ref: RunRef, scope: Scope, letter: str) -> OpTimeline:
    name = runs.names[ref.index]
    try:
        table = runs.kept(
            ref, ("op_timeline", scope), lambda run: analysis.op_timeline(run, **scope.arguments)
        )
    except MusetraceError as error:
        raise AnalysisError(f"{letter}, {name}: {error}") from error
    return OpTimeline(table, list(stop_jobs(runs.run(ref).job_table)), f"{letter}: {name}")
