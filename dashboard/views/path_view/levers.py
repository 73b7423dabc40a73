"""The levers of a what-if: a slider for the time of each op, a switch for each stop and wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from dash import dcc, html

from musetrace.analysis.gaps.stops import stop_jobs
from musetrace.analysis.paths.change import Change
from musetrace.dashboard.what_list import known_changes, write_changes, written
from musetrace.job_table import JobTable
from musetrace.wording.numbers import bounded_us

WHOLE, MOST = 100, 200  # % of the time that an op took
FASTER_TO = 90
_DECIMALS = 2


@dataclass(frozen=True)
class Levers:
    """What can be changed in the launches of a scope, in job-table order; what an op saves at 10 % less."""

    ops: tuple[str, ...]
    stops: tuple[str, ...]
    waits: tuple[str, ...]
    saves: Mapping[str, str]

    @classmethod
    def of(cls, table: JobTable, what_ifs: pa.Table) -> Levers:
        """Those of the answer of ``musetrace.analysis.what_ifs``."""
        rows = what_ifs.to_pylist()
        ops, gone = ({row["target"] for row in rows if row["how"] == how} for how in ("zero", "gone"))
        stops = [op for op in stop_jobs(table) if op in gone]
        names = dict.fromkeys(job.op for job in table.jobs)
        waits = [job.name for job in table.jobs if job.name in gone and job.name not in stops]
        saves = {
            row["target"]: bounded_us(row["saved_mean_ns"], row["saved_mean_uncertainty_ns"], _DECIMALS)
            for row in rows
            if row["how"] == "faster"
        }
        return cls(tuple(op for op in names if op in ops), tuple(stops), tuple(waits), saves)

    def names(self, others: Sequence[Change]) -> dict[str, list[str]]:
        """What the page's script writes the list of changes with."""
        return {
            "ops": [written(op) for op in self.ops],
            "others": [write_changes([change.text]) for change in others],
        }


@dataclass(frozen=True)
class Setting:
    """What the levers are set to: percents by op, waits that are gone, and changes that have no lever."""

    percents: Mapping[str, float]
    gone: frozenset[str]
    others: tuple[Change, ...]

    @classmethod
    def of(cls, table: JobTable, levers: Levers, what: str) -> Setting:
        """From the list of changes of the address bar."""
        percents: dict[str, float] = {}
        gone: set[str] = set()
        others: list[Change] = []
        for change in known_changes(table, what):
            if change.gone and change.target in (*levers.stops, *levers.waits):
                gone.add(change.target)
            elif not change.gone and change.target in levers.ops:
                percents[change.target] = float(change.factor * WHOLE)
            else:
                others.append(change)
        return cls(percents, frozenset(gone), tuple(others))


def lever_parts(levers: Levers, setting: Setting) -> list[Any]:
    """The sliders and switches."""
    parts: list[Any] = []
    if levers.ops:
        head = html.Div(
            [
                html.Span("op"),
                html.Span("its time"),
                html.Span(),
                html.Span("10 % less: \N{MICRO SIGN}s saved"),
            ],
            className="lever lever-head",
        )
        sliders = [_slider(at, op, levers, setting) for at, op in enumerate(levers.ops)]
        parts.append(html.Div([head, *sliders], className="levers"))
    for at, (title, names) in enumerate((("stop gone", levers.stops), ("wait gone", levers.waits))):
        if names:
            parts.append(_switches(at, title, names, setting))
    if setting.others:
        texts = ", ".join(change.text for change in setting.others)
        parts.append(html.P(f"besides: {texts}", className="note"))
    return parts


def _slider(at: int, op: str, levers: Levers, setting: Setting) -> html.Label:
    percent = setting.percents.get(op, WHOLE)
    slider = dcc.Input(id={"type": "what-op", "at": at}, type="range", min=0, max=MOST, step=1, value=percent)
    reading = html.Output(f"{percent:g} %", id={"type": "what-percent", "at": at}, className="lever-percent")
    name = html.Span(op, className="lever-name", title=op)
    saves = html.Span(levers.saves.get(op, ""), className="lever-saves")
    return html.Label([name, slider, reading, saves], className="lever")


def _switches(at: int, title: str, names: Sequence[str], setting: Setting) -> html.Div:
    switches = dcc.Checklist(
        id={"type": "what-waits", "at": at},
        options=[{"label": name, "value": written(name), "title": name} for name in names],
        value=[written(name) for name in names if name in setting.gone],
        className="switches",
    )
    return html.Div([html.H4(title), switches], className="switch-group")
