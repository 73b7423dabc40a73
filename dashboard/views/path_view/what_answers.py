"""What the launches would be with some changes, and the changes that bring most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
from dash import html

from musetrace import analysis
from musetrace.cli.path_words import replayed_words
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.grid import Column
from musetrace.dashboard.views.path_view.levers import FASTER_TO
from musetrace.dashboard.views.path_view.path_scope import sampled
from musetrace.dashboard.views.span_quality import nothing_stamped
from musetrace.dashboard.what_list import read_changes, written
from musetrace.figures.blank import sentence_figure
from musetrace.figures.what_if_bar import what_if_figure
from musetrace.figures.wording import plus_minus
from musetrace.wording.numbers import bounded_us, percent, us

_DECIMALS = 2
_SET_TO = {"zero": "0", "faster": str(FASTER_TO), "gone": "gone"}
_SAYS = {"zero": "no time", "faster": "10 % less", "gone": "gone"}

_SAVED_TIP = "of a launch; nothing is ranked within what the clock leaves open"
_PATH_TIP = "what it has of the critical path: where much less is saved, another path is nearly as long"
RANKED_COLUMNS = (
    Column("target", "if"),
    Column("says", "is", width=84),
    Column("saved_us", "saved, \N{MICRO SIGN}s", 2, 104, _SAVED_TIP),
    Column("off_ns", "\N{PLUS-MINUS SIGN} ns", 0, 66, "what the clock leaves open in it"),
    Column("share", "%", 1, 64, "of the launch"),
    Column("on_path_us", "on path, \N{MICRO SIGN}s", 2, 112, _PATH_TIP),
)


def what_ifs_of(runs: OpenRuns, ref: RunRef, scope: Scope) -> pa.Table:
    """The answer of ``musetrace.analysis.what_ifs``."""
    return runs.kept(
        ref, ("what_ifs", scope), lambda run: analysis.what_ifs(run, sampled=sampled(runs, ref, scope))
    )


def ranked_rows(what_ifs: pa.Table) -> list[dict[str, Any]]:
    """The rows of the table; ``lever`` and ``to`` say what a click on one sets."""
    return [
        {
            "target": row["target"],
            "says": _SAYS[row["how"]],
            "saved_us": row["saved_mean_ns"] / 1000,
            "off_ns": row["saved_mean_uncertainty_ns"],
            "share": None if row["saved_share"] is None else 100 * row["saved_share"],
            "on_path_us": row["on_path_mean_ns"] / 1000,
            "lever": written(row["target"]),
            "to": _SET_TO[row["how"]],
        }
        for row in what_ifs.to_pylist()
    ]


def draw_what_if(
    runs: OpenRuns, ref: RunRef, scope: Scope, what: str, theme_name: str
) -> tuple[go.Figure, list[Any]]:
    """How long a launch would be with the changes of a list, drawn and in words."""

    def draw() -> tuple[go.Figure, list[Any]]:
        run = runs.run(ref)
        changes = read_changes(what)
        table = analysis.what_if(run, changes, together=True, sampled=sampled(runs, ref, scope))
        if not table.num_rows:
            return sentence_figure(nothing_stamped(run), theme_name), []
        (row,) = table.to_pylist()
        return what_if_figure(row, theme_name), result_parts(row)

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), []))


def result_parts(row: Mapping[str, Any]) -> list[Any]:
    """The result in words: the launch, and a step of such launches."""
    length, then = us(row["length_mean_ns"], _DECIMALS), us(row["new_mean_ns"], _DECIMALS)
    if row["how"] == "unchanged":
        lines = [html.B(f"{length} \N{MICRO SIGN}s"), html.Span("a launch, as recorded")]
    else:
        saved = _saved_words(row, "saved_mean", "a launch") + _share_words(row)
        of_step = _saved_words(row, "saved_step", "a step")
        lines = [
            html.B(f"{length} \N{RIGHTWARDS ARROW} {then} \N{MICRO SIGN}s"),
            html.Span(saved),
            html.Span(of_step, title="if its launches follow each other"),
        ]
    return [html.Div(lines, className="what-line"), html.P(replayed_words(row), className="note")]


def _share_words(row: Mapping[str, Any]) -> str:
    if row["saved_share"] is None or not _is_told(row, "saved_mean"):
        return ""
    return f" ({percent(abs(row['saved_share']))})"


def _is_told(row: Mapping[str, Any], name: str) -> bool:
    off = row[f"{name}_uncertainty_ns"]
    return off is not None and abs(row[f"{name}_ns"]) >= off


def _saved_words(row: Mapping[str, Any], name: str, what: str) -> str:
    saved, off = row[f"{name}_ns"], row[f"{name}_uncertainty_ns"]
    if not _is_told(row, name):
        amount = bounded_us(saved, off, _DECIMALS) if off is not None else us(saved, _DECIMALS)
        return f"{what}: {amount} \N{MICRO SIGN}s {plus_minus(off)}, no difference told"
    word = "shorter" if saved > 0 else "longer"
    return f"{what}: {us(abs(saved), _DECIMALS)} \N{MICRO SIGN}s {word} {plus_minus(off)}"
