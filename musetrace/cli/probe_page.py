"""The facts of a device as lines: a table for each experiment, and its notes."""

from __future__ import annotations

from typing import Any

from musetrace.cli.conditions import described, labelled
from musetrace.cli.numbers import count
from musetrace.cli.output import Screen
from musetrace.cli.table import Column, table_lines, table_width
from musetrace.cli.text import wrap
from musetrace.probe.experiments import EXPERIMENTS, FAILED, MEASURED

_DIGITS = 4
_LARGE = 10_000
_LEAST_NOTE = 24
_WIDEST_CASE = 44
_WIDEST_NUMBER = 32
_LONG_NUMBER = 12
_INDENT = 2


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


def _fact_lines(facts: list[dict[str, Any]], width: int) -> list[str]:
    """A row for each fact; what it means stands behind it where there is room, else below the table."""
    columns = [
        Column("fact", [_label(fact) for fact in facts], left=True, widest=_WIDEST_CASE + 20),
        *(
            Column(name, [_cell(fact, name) for fact in facts], widest=_WIDEST_NUMBER)
            for name in ("p10", "median", "p90")
        ),
        Column("unit", [fact["unit"] for fact in facts], left=True),
        Column("n", [count(fact["n"]) for fact in facts]),
    ]
    notes = [str(fact["note"]) for fact in facts]
    room = width - table_width(columns) - 2
    if any(notes) and room >= max(_LEAST_NOTE, *map(len, notes)):
        return table_lines(columns, width, notes)
    below = [
        line
        for note, labels in _by_note(facts).items()
        for line in wrap(f"- {labels}: {note}", width, indent="  ")
    ]
    return [*table_lines(columns, width), *below]


def _by_note(facts: list[dict[str, Any]]) -> dict[str, str]:
    """The facts' names under each note, joined."""
    names: dict[str, dict[str, None]] = {}
    for fact in facts:
        if fact["note"]:
            names.setdefault(str(fact["note"]), {})[_label(fact)] = None
    return {note: "; ".join(labels) for note, labels in names.items()}


def _label(fact: dict[str, Any]) -> str:
    """Name, variant and place on the axis."""
    words = str(fact["name"])
    if fact["case"]:
        words += f", {fact['case']}"
    if fact["at"] is not None:
        words += f", {fact['at']} {fact['at_unit']}"
    return words


def _cell(fact: dict[str, Any], name: str) -> str:
    """A figure; ``=`` beside a long one that it equals, where three times the digits would not fit."""
    text = number(fact[name])
    repeats = name != "median" and fact[name] == fact["median"] and len(text) > _LONG_NUMBER
    return "=" if repeats else text


def number(value: float | int) -> str:
    """About four digits, with separators from a thousand on; a whole number as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    whole = len(f"{int(size)}") if size >= 1 else 0
    text = f"{value:,.0f}" if size >= _LARGE else f"{value:,.{max(_DIGITS - whole, 0)}f}"
    return text if text.strip("-0.") else "0"
