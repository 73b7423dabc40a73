"""What to fix first, in words, each with links to the views that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from dash import dcc, html

from musetrace.analysis.paths.what_if import FASTER_PERCENT
from musetrace.analysis.priorities.findings import IDLE_AFTER, IDLE_CAUSE, WHAT_IF
from musetrace.analysis.priorities.gains import FASTER, GONE
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.places import Places
from musetrace.dashboard.voice import VOICE
from musetrace.wording.finding_sentences import (
    GAIN_STARTS,
    NOT_RANKED,
    behind_sentence,
    cause_details,
    cause_headline,
    gain_words,
    is_worth_telling,
    place_marks,
    tied_sentence,
    whole_sentence,
)
from musetrace.wording.observed import observed_note

Row = Mapping[str, Any]
MOST_CAUSES = 5
_CHANGES = {GONE: "=gone", FASTER: f"=-{FASTER_PERCENT}%"}  # behind a target, as `what_if` takes them


def whole_words(table: pa.Table, steps: pa.Table) -> str:
    """How idle an average block is; ``steps`` is the answer of ``step_times``."""
    rows = table.to_pylist()
    means = [row["step_mean_ns"] for row in steps.to_pylist() if row["clock"] == "device"]
    whole = whole_sentence(rows, means[0] if means else None)
    causes = [row for row in rows if row["finding"] == IDLE_CAUSE]
    unknown = any(row["per_step_uncertainty_ns"] is None for row in causes)
    notes = [whole, NOT_RANKED if unknown else "", observed_note(table)]
    return "; ".join(filter(None, notes))


def finding_list(table: pa.Table, places: Places) -> list[Any]:
    """An answer of ``musetrace.analysis.findings``, in its order."""
    rows = table.to_pylist()
    causes = [row for row in rows if row["finding"] == IDLE_CAUSE]
    behind = [row for row in rows if row["finding"] == IDLE_AFTER]
    items = [
        html.Li([html.Span(mark, className="place"), html.Div(_cause(row, places))])
        for row, mark in zip(causes[:MOST_CAUSES], place_marks(causes), strict=False)
    ]
    tied = tied_sentence(causes, MOST_CAUSES, VOICE)
    rest = [
        *([tied] if tied else []),
        *(_behind(row, places) for row in behind if is_worth_telling(row)),
        *_gains(rows, places),
    ]
    return [
        html.Ol(items, className="findings"),
        html.Ul([html.Li(one) for one in rest], className="more-findings"),
    ]


def scope_of(row: Row) -> Scope:
    """The kind of launch in which a finding takes the most time."""
    launches = row["launches"] or []
    most = max(launches, key=lambda one: one["per_step"] * one["idle_mean_ns"], default=None)
    return Scope() if most is None else Scope(kind=most["kind"])


def _cause(row: Row, places: Places) -> list[Any]:
    return [
        html.P(cause_headline(row, VOICE), className="finding-title"),
        html.P(cause_details(row, VOICE), className="note"),
        html.P(_links(row, places), className="links"),
    ]


def _links(row: Row, places: Places) -> list[Any]:
    """The view of its numbers first, then those where to look next."""
    scope, cause = scope_of(row), str(row["wait"] or row["cause"])
    found = [("examples", places.idle(scope, cause))]
    if row["wait"] is not None:
        found.append(("if it were gone", places.what_if(scope, f"{row['wait']}=gone")))
    if row["cause"] == "stop":
        found.append((f"who is late at {VOICE.shown(row['op'])}", places.stop(scope, row["op"])))
    if row["look_at"] == "launch_edges":
        found.append(("how launches follow each other", places.launches(scope)))
    elif row["look_at"] in ("ops", "loads_ahead", "attribution"):
        found.append(("when its ops run", places.ops(scope)))
    return [dcc.Link(words, href=href) for words, href in found]


def _behind(row: Row, places: Places) -> list[Any]:
    link = dcc.Link("by op", href=places.idle(scope_of(row)))
    return [behind_sentence(row, VOICE), " ", link]


def _gains(rows: Sequence[Row], places: Places) -> list[list[Any]]:
    found = []
    for how, start in GAIN_STARTS.items():
        mine = [row for row in rows if row["finding"] == WHAT_IF and row["how"] == how]
        if mine:
            changes = [f"{row['target']}{_CHANGES[how]}" for row in mine]
            links = [
                dcc.Link(gain_words(row, VOICE), href=places.what_if(Scope(), change))
                for row, change in zip(mine, changes, strict=True)
            ]
            found.append([f"{start}: ", *(one for link in links for one in (link, ", "))][:-1])
    return found
