"""The facts of a device as lines: a table for each experiment, and its notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from musetrace.cli.conditions import described, labelled
from musetrace.cli.output import Screen
from musetrace.cli.table import Column, table_lines, table_width
from musetrace.cli.text import wrap
from musetrace.probe.experiments import EXPERIMENTS, FAILED, MEASURED
from musetrace.wording.numbers import count

_DIGITS = 4
_LARGE = 10_000
_WIDEST_CASE = 44
_WIDEST_NUMBER = 32
_LONG_NUMBER = 12
_INDENT = 2
_FIGURES = ("p10", "median", "p90")


def list_lines(screen: Screen) -> list[str]:
    """The experiments of each kind of device."""
    lines: list[str] = []
    for kind, there in EXPERIMENTS.items():
        names = [Column(kind, [one.name for one in there], left=True)]
        lines += [*table_lines(names, screen.width, [one.title for one in there], "measures"), ""]
    return lines[:-1]


def page(probed: dict[str, Any], screen: Screen) -> list[str]:
    """The device, then every experiment, and at the end those that failed."""
    probed = _harmless(probed, screen)
    device = {name: value for name, value in probed["device"].items() if name != "kind"}
    lines = wrap(f"musetrace probe: {device['name']}", screen.width)
    lines += labelled("device", described(device, screen), screen)
    lines += labelled("measured", probed["measured_at"], screen)
    for experiment in probed["experiments"]:
        lines += ["", *_experiment_lines(experiment, screen.width)]
    failed = [experiment["name"] for experiment in probed["experiments"] if experiment["state"] == FAILED]
    if failed:
        lines += ["", *wrap(f"{len(failed)} failed: {', '.join(failed)}", screen.width)]
    return lines


def _harmless(value: Any, screen: Screen) -> Any:
    """A document whose texts, which may come from a file, leave the screen as it is."""
    if isinstance(value, dict):
        return {name: _harmless(item, screen) for name, item in value.items()}
    if isinstance(value, list):
        return [_harmless(item, screen) for item in value]
    return screen.shown(value) if isinstance(value, str) else value


def _experiment_lines(experiment: dict[str, Any], width: int) -> list[str]:
    """One experiment: its title, its facts, its notes."""
    lines = wrap(f"{experiment['name']}: {experiment['title']}", width, indent="  ")
    if experiment["state"] != MEASURED:
        why = f"{experiment['state']}: {experiment['why']}"
        return [*lines, *_indented(wrap(why, width - _INDENT, indent="  "))]
    lines += _indented(_fact_lines(experiment["facts"], width - _INDENT))
    for note in experiment["notes"]:
        lines += _indented(wrap(f"- {note}", width - _INDENT, indent="  "))
    return lines


def _indented(lines: list[str]) -> list[str]:
    return [" " * _INDENT + line for line in lines]


@dataclass(frozen=True)
class _Row:
    """A line of the table: a fact, or the heading of a curve."""

    label: str
    note: str = ""
    fact: dict[str, Any] | None = None

    def cell(self, name: str) -> str:
        """A figure; ``=`` beside a long one that it equals, where three times the digits would not fit."""
        if self.fact is None:
            return ""
        text = number(self.fact[name])
        repeats = name != "median" and self.fact[name] == self.fact["median"] and len(text) > _LONG_NUMBER
        return "=" if repeats else text


def _fact_lines(facts: list[dict[str, Any]], width: int) -> list[str]:
    """A row for each fact; a note stands behind it where there is room, else below the table."""
    rows = _rows(facts)
    columns = [
        Column("fact", [row.label for row in rows], left=True, widest=_WIDEST_CASE + 20),
        *(Column(name, [row.cell(name) for row in rows], widest=_WIDEST_NUMBER) for name in _FIGURES),
        Column("unit", [row.fact["unit"] if row.fact else "" for row in rows], left=True),
        Column("n", [count(row.fact["n"]) if row.fact else "" for row in rows]),
    ]
    room = width - table_width(columns) - 2
    beside = [row.note if len(row.note) <= room else "" for row in rows]
    below = [
        line
        for note, labels in _by_note([row for row in rows if len(row.note) > room]).items()
        for line in wrap(f"- {labels}: {note}", width, indent="  ")
    ]
    return [*(table_lines(columns, width, beside) if any(beside) else table_lines(columns, width)), *below]


def _rows(facts: list[dict[str, Any]]) -> list[_Row]:
    """Facts in their order; those of a curve, which differ in their place on its axis, below a heading."""
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for fact in facts:
        curves.setdefault((str(fact["name"]), str(fact["case"])), []).append(fact)
    rows: list[_Row] = []
    for (name, case), curve in curves.items():
        heading = f"{name}, {case}" if case else name
        notes = {str(fact["note"]) for fact in curve}
        if len(curve) == 1:
            # A case of one place names it.
            place = "" if case else _place(curve[0], ", ")
            rows.append(_Row(heading + place, notes.pop(), curve[0]))
            continue
        rows.append(_Row(heading, notes.pop() if len(notes) == 1 else ""))
        rows += [_Row(_place(fact, "  "), str(fact["note"]) if notes else "", fact) for fact in curve]
    return rows


def _place(fact: dict[str, Any], before: str) -> str:
    """Where a fact stands on its curve's axis, if it is one of a curve."""
    return "" if fact["at"] is None else f"{before}{fact['at']} {fact['at_unit']}"


def _by_note(rows: list[_Row]) -> dict[str, str]:
    """The labels under each note, joined."""
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.note:
            names.setdefault(row.note, {})[row.label.strip()] = None
    return {note: "; ".join(labels) for note, labels in names.items()}


def number(value: float | int) -> str:
    """About four digits, with separators from a thousand on; a whole number as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    whole = len(f"{int(size)}") if size >= 1 else 0
    text = f"{value:,.0f}" if size >= _LARGE else f"{value:,.{max(_DIGITS - whole, 0)}f}"
    return text if text.strip("-0.") else "0"
