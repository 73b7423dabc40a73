"""The report's section on bandwidth: what each part of a launch reads, and how fast, beside the ceiling."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from musetrace.analysis.engines.roofline import BYTES_NOTE, CEILING_NOTE, PARTIAL_LAUNCHES
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Bars, Block, Sentence, Table
from musetrace.cli.table import Column
from musetrace.cli.time_table import ROOMY, Rows, longest
from musetrace.wording.numbers import NOTHING, count, decimals_for, percent, size, us

_SHOWN_PARTS = ("launch", "phase", "op")
_MILLI = 1000
_WHOLE_FROM_GB_S = 10


def roofline_blocks(table: pa.Table, screen: Screen) -> list[Block]:
    """A row for each launch, phase and op that reads, in the layers of which there are most.

    What moves other bytes in other layers, single jobs and sends are in the JSON alone; so is what moves
    bytes of which nothing is known, but for a note.
    """
    every = table.to_pylist()
    known = [row for row in every if row["part"] in _SHOWN_PARTS and row["bytes_low"]]
    rows = _of_most_launches(known)
    decimals = decimals_for(longest(rows, "covered_p50_ns"))
    columns = [
        Column("reads in", [_name(row, screen) for row in rows], left=True),
        Column("n", [count(row["n"]) for row in rows]),
        Column("bytes", [_bytes(row) for row in rows]),
        Column("us", [us(row["covered_p50_ns"], decimals) for row in rows]),
        Column("GB/s", [_rate(row["bandwidth_gb_s"]) for row in rows]),
        *([Column("from", [_rate(row["bandwidth_low_gb_s"]) for row in rows])] if _roomy(screen) else []),
        *([Column("to", [_rate(row["bandwidth_high_gb_s"]) for row in rows])] if _roomy(screen) else []),
        Column("of ceiling", [percent(row["ceiling_share"]) for row in rows]),
    ]
    return [_with_bars(columns, rows), *_notes(table, rows, every, screen)]


def no_bytes_sentence(table: pa.Table, screen: Screen) -> str:
    """Why there is nothing to show."""
    return _note(table, BYTES_NOTE, screen)


def _of_most_launches(rows: Rows) -> Rows:
    """Of rows that differ in their layers alone, the one with most launches; of equals the first."""
    most: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["part"], row["kind"], row["name"]
        if key not in most or row["n"] > most[key]["n"]:
            most[key] = row
    order = {part: at for at, part in enumerate(_SHOWN_PARTS)}
    return sorted(most.values(), key=lambda row: order[row["part"]])


def _name(row: dict[str, Any], screen: Screen) -> str:
    name = screen.shown(row["name"])
    if row["part"] == "launch":
        return f"whole {name}"
    if row["part"] == "op":
        return name
    return "to the end" if name == "end" else f"to {name}"


def _bytes(row: dict[str, Any]) -> str:
    if row["bytes"] is not None:
        return size(row["bytes"])
    return f">{size(row['bytes_low'])}"


def _rate(gb_s: float | None) -> str:
    if gb_s is None:
        return NOTHING
    return f"{gb_s:,.0f}" if gb_s >= _WHOLE_FROM_GB_S or not gb_s else f"{gb_s:,.2f}"


def _with_bars(columns: list[Column], rows: Rows) -> Table:
    """The table, with each share of the ceiling as a bar, and its interval."""
    if not any(row["ceiling_share"] for row in rows):
        return Table(columns)
    return Table(columns, rows, _MILLI, _bar, axis_labels=("0 %", "ceiling"))


def _bar(chart: Bars, row: dict[str, Any]) -> str:
    share = row["ceiling_share"]
    if share is None:
        return ""
    low = share if row["ceiling_share_low"] is None else row["ceiling_share_low"]
    high = share if row["ceiling_share_high"] is None else row["ceiling_share_high"]
    kind = "load" if row["part"] == "op" else "compute"
    return chart.bar(kind, 0, round(_MILLI * share), round(_MILLI * low), round(_MILLI * high))


def _notes(table: pa.Table, rows: Rows, every: Rows, screen: Screen) -> list[Block]:
    ceilings = {row["ceiling_gb_s"] for row in rows if row["ceiling_gb_s"] is not None}
    ceiling = f"{_rate(ceilings.pop())} GB/s, " if ceilings else "not known: "
    sentences = [f"ceiling: {ceiling}{_note(table, CEILING_NOTE, screen)}"]
    sentences += _bases(every, screen)
    if (note := _note(table, BYTES_NOTE, screen)) != "":
        sentences.append(note)
    if (partial := int(table.schema.metadata[PARTIAL_LAUNCHES])) > 0:
        sentences.append(f"{count(partial)} launches that not all blocks have reported are left out")
    return [Sentence(sentence, "  ") for sentence in dict.fromkeys(sentences)]


def _bases(rows: Rows, screen: Screen) -> list[str]:
    """How bytes are known that are not simply so, or why they are not, and of which jobs."""
    jobs: dict[str, list[str]] = {}
    for row in rows:
        if row["part"] == "job" and row["way"] == "reads" and row["bytes_basis"]:
            jobs.setdefault(row["bytes_basis"], []).append(screen.shown(row["name"]))
    return [f"{', '.join(dict.fromkeys(names))}: {screen.shown(basis)}" for basis, names in jobs.items()]


def _note(table: pa.Table, key: bytes, screen: Screen) -> str:
    return screen.shown(table.schema.metadata[key].decode())


def _roomy(screen: Screen) -> bool:
    return screen.width >= ROOMY
