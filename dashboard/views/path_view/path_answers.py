"""The critical path over a scope, and of one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
from dash import dcc, html

from musetrace import analysis
from musetrace.analysis import below_tick_spans, ignored_spans
from musetrace.analysis.certainty.clock_quality import largest_first
from musetrace.cli.path_words import edge_words, launches_words, part_words
from musetrace.dashboard.address import address, span_name
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.grid import Column
from musetrace.dashboard.views.path_view.path_scope import STEP, Examples, path_over
from musetrace.dashboard.views.span_quality import nothing_stamped, quality
from musetrace.figures.blank import sentence_figure
from musetrace.figures.critical_bar import critical_bar_figure, stretch_name, stretch_place, stretch_words
from musetrace.figures.path_parts import path_parts_figure
from musetrace.figures.wording import exact_ns, plus_minus
from musetrace.wording.numbers import count, us

_DECIMALS = 2
HINT = "Click a stretch to see its span."

EDGE_COLUMNS = (
    Column("from", "way from"),
    Column("to", "to"),
    Column("how", "how", width=88),
    Column("n", "n", 0, 50, "how often paths take it"),
    Column("p50_us", "p50, \N{MICRO SIGN}s", 2, 92, "from the end of the cause to what it caused"),
    Column("off_ns", "\N{PLUS-MINUS SIGN} ns", 0, 68, "what the clock leaves open in p50"),
    Column("total_us", "all, \N{MICRO SIGN}s", 1, 80, "of all paths that are looked at"),
)
STRETCH_COLUMNS = (
    Column("name", "job"),
    Column("how", "how"),
    Column("place", "where"),
    Column("begin_ns", "begin, ns", 0, 96),
    Column("dur_ns", "long, ns", 0, 88),
)


def draw_parts(
    runs: OpenRuns, ref: RunRef, scope: Scope, of: str, theme_name: str
) -> tuple[go.Figure, str, list[dict[str, Any]]]:
    """What each op has of the path, the note above it, and the rows of the ways between warps."""

    def draw() -> tuple[go.Figure, str, list[dict[str, Any]]]:
        found = path_over(runs, ref, scope, of)
        if not found.n:
            return sentence_figure(nothing_stamped(runs.run(ref)), theme_name), "", []
        figure = path_parts_figure(found.parts, part_words, theme_name, STEP if of == STEP else "launch")
        figure.update_layout(uirevision=f"{scope} {of}")
        return figure, path_note(found, of), edge_rows(found.edges)

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), "", []))


def path_note(found: analysis.CriticalPath, of: str) -> str:
    """Of what the path is, and what is not in it."""
    if of == STEP:
        steps = f"{count(found.n)} of {count(found.of_n)}" if found.n < found.of_n else count(found.n)
        of_what = f"a step, mean of {steps} {'step' if found.of_n == 1 else 'steps'}, with all their launches"
    else:
        of_what = f"a launch, mean of {launches_words(found.n, found.of_n)}"
    whole = f"{us(found.length_ns / found.n, _DECIMALS)} \N{MICRO SIGN}s {of_what}"
    parts = [whole, "the path is what its end waited for"]
    parts += quality(ignored_spans(found.parts), below_tick_spans(found.parts))
    return "; ".join([*parts, *([f"{found.dropped:,} dependences dropped"] if found.dropped else [])])


def edge_rows(edges: pa.Table) -> list[dict[str, Any]]:
    """The ways between warps, those first that cost most in all."""
    return [
        {
            "from": row["from_job"],
            "to": row["job"],
            "how": edge_words(row),
            "n": row["n"],
            "p50_us": row["hop_p50_ns"] / 1000,
            "off_ns": row["hop_uncertainty_ns"],
            "total_us": row["hop_total_ns"] / 1000,
        }
        for row in largest_first(edges.to_pylist(), "hop_total_ns", "hop_total_uncertainty_ns")
    ]


def stretches(runs: OpenRuns, ref: RunRef, scope: Scope, chosen: str) -> tuple[pa.Table | None, str]:
    """The path of the launch that is drawn, and which launch that is."""
    examples = runs.kept(ref, ("examples", scope, chosen), lambda run: Examples(run, scope, chosen))
    of = examples.shown
    if of is None:
        return None, ""
    rank = scope.arguments["rank"]
    table = runs.kept(
        ref,
        ("stretches", of, rank),
        lambda run: analysis.critical_spans(run, rank=rank, step=of.step, launch=of.launch),
    )
    return table, examples.words(of)


def draw_strip(
    runs: OpenRuns, ref: RunRef, scope: Scope, chosen: str, theme_name: str
) -> tuple[go.Figure, str, list[dict[str, Any]]]:
    """The path of one launch along its time, which launch it is, and the rows of its stretches."""

    def draw() -> tuple[go.Figure, str, list[dict[str, Any]]]:
        table, words = stretches(runs, ref, scope, chosen)
        if table is None or not table.num_rows:
            return sentence_figure(nothing_stamped(runs.run(ref)), theme_name), "", []
        figure = critical_bar_figure(table, theme_name)
        figure.update_layout(uirevision=words)
        return figure, f"one launch: {words}", stretch_rows(table)

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), "", []))


def stretch_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The stretches as the table of the view has them; ``at`` is a row's place in the answer."""
    return [
        {
            "at": at,
            "name": stretch_name(row),
            "how": stretch_words(row),
            "place": stretch_place(row),
            "begin_ns": row["begin_ns"],
            "dur_ns": row["dur_ns"],
        }
        for at, row in enumerate(table.to_pylist())
    ]


def clicked(click: object) -> int | None:
    """The place of the stretch that a click on the strip means."""
    try:
        return int(click["points"][0]["customdata"][-1])  # type: ignore[index]
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def picked(selected: object) -> int | None:
    """The place of the stretch of a table's row."""
    try:
        return int(selected[0]["at"])  # type: ignore[index]
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def read_stretch(runs: OpenRuns, ref: RunRef, scope: Scope, chosen: str, place: int | None) -> Any:
    """One stretch in full, with ways to its span and to the span that it came from."""

    def read() -> Any:
        table, _ = stretches(runs, ref, scope, chosen)
        rows = [] if table is None else table.to_pylist()
        if place is None or not 0 <= place < len(rows):
            return HINT
        return stretch_parts(rows, place, ref, analysis.tick_ns(runs.run(ref)))

    return or_sentence(read, lambda sentence: sentence)


def stretch_parts(rows: Sequence[Mapping[str, Any]], place: int, ref: RunRef, tick: int | None) -> list[Any]:
    """The readout of a stretch."""
    row = rows[place]
    begin, length = row["begin_ns"], row["dur_ns"]
    parts: list[Any] = [
        html.I(className=f"swatch swatch-{row['kind']}") if row["job"] is not None else None,
        html.B(stretch_name(row)),
        html.Span(stretch_place(row)),
        html.Span(["begin ", html.Data(exact_ns(begin), value=str(begin)), " ns"]),
        html.Span([html.Data(exact_ns(length), value=str(length)), " ns long ", plus_minus(tick)]),
        html.Span(stretch_words(row)),
    ]
    if row["span"] is not None:
        parts.append(dcc.Link("its span in the timeline", href=_timeline(row, ref)))
    before = next((one for one in reversed(rows[:place]) if one["span"] is not None), None)
    if row["from_job"] is not None and before is not None:
        parts.append(dcc.Link("what it came from", href=_timeline(before, ref)))
    return [part for part in parts if part is not None]


def _timeline(row: Mapping[str, Any], ref: RunRef) -> str:
    return address("timeline", ref.index, span=span_name(row["rank"], row["step"], row["span"]))
