"""Bandwidth against the ceiling: picture, note and table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from musetrace.analysis import roofline
from musetrace.analysis.engines.read_ceiling import read_ceiling
from musetrace.analysis.engines.roofline import BYTES_NOTE, PARTIAL_LAUNCHES
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.grid import Column, grid
from musetrace.dashboard.views.span_quality import nothing_stamped, observed_words
from musetrace.figures.blank import sentence_figure
from musetrace.figures.roofline_rows import drawn_rows, part_words, roofline_figure
from musetrace.figures.wording import many
from musetrace.known_bytes import known_bytes

LINEAR, LOG = "linear", "log"
_PERCENT = 100.0


def bandwidths(run: RecordedRun, scope: Scope) -> pa.Table:
    """``roofline`` of the bytes that the run says, or that older runs of the built-in model describe."""
    return roofline(run, **scope.arguments, moved=known_bytes(run))


def draw_roofline(run: RecordedRun, answered: Any, scale: str, theme_name: str) -> tuple[go.Figure, str, Any]:
    """The bandwidths with the ceiling, the note above them, and the table; ``answered()`` is the answer."""

    def draw() -> tuple[go.Figure, str, Any]:
        table = answered()
        rows = table.to_pylist()
        note = roofline_note(run, table)
        if not drawn_rows(rows):
            why = table.schema.metadata[BYTES_NOTE].decode()
            return sentence_figure(why or nothing_stamped(run), theme_name), note, None
        ceiling = read_ceiling(run.manifest)
        tenths = [ceiling.gb_s, ceiling.p10_gb_s, ceiling.p90_gb_s]
        known = [one for one in tenths if one is not None]
        figure = roofline_figure(
            table, theme_name, log=scale == LOG, ceiling_gb_s=known if len(known) == 3 else ()
        )  # noqa: PLR2004
        return figure, note, grid("roofline-grid", _COLUMNS, [roofline_row(row) for row in rows])

    return or_sentence(draw, lambda sentence: (sentence_figure(sentence, theme_name), "", None))


def roofline_note(run: RecordedRun, table: pa.Table) -> str:
    """Where the ceiling is from or how to get it, and what is left out."""
    ceiling = read_ceiling(run.manifest)
    known = f"ceiling {ceiling.gb_s:,.0f} GB/s" if ceiling.gb_s is not None else "ceiling not known"
    parts = [f"{known}: {ceiling.note}"]
    partial = int(table.schema.metadata[PARTIAL_LAUNCHES])
    if partial:
        parts.append(f"{many(partial, 'launch', 'launches')} that not all blocks have reported left out")
    return "; ".join([*parts, *observed_words(table)])


_COLUMNS = (
    Column("part", "part", width=84),
    Column("kind", "launch", width=96),
    Column("what", "what", None, 140),
    Column("way", "way", width=76),
    Column("layers", "layers", width=96, tip="layers that move these bytes"),
    Column("n", "n", 0, 64, "launches times ranks"),
    Column("bytes", "bytes", 0, 116, "of all blocks of a rank in one launch"),
    Column("covered_p50_ns", "ns p50", 0, 90, "in which at least one block is in it, median"),
    Column("covered_uncertainty_ns", "\N{PLUS-MINUS SIGN} ns", 0, 70, "what the clock leaves open in it"),
    Column("bandwidth_gb_s", "GB/s", 1, 84),
    Column("bandwidth_low_gb_s", "from", 1, 84, "the lowest that bytes, time and clock leave open"),
    Column("bandwidth_high_gb_s", "to", 1, 84, "the highest"),
    Column("ceiling", "% of ceiling", 1, 100),
    Column("ceiling_low", "from", 1, 72),
    Column("ceiling_high", "to", 1, 72),
    Column("basis", "how the bytes are known"),
)


def roofline_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``roofline`` as the table has it."""
    found = {column.field: row.get(column.field) for column in _COLUMNS}
    unknown = ", ".join(row["unknown_jobs"])
    shares = {
        f"ceiling{end}": None if (share := row[f"ceiling_share{end}"]) is None else _PERCENT * share
        for end in ("", "_low", "_high")
    }
    return {
        **found,
        **shares,
        "what": part_words(row),
        "layers": layers_words(row["layers"]),
        "basis": f"not known of {unknown}: {row['bytes_basis']}" if unknown else row["bytes_basis"],
    }


def layers_words(layers: list[int]) -> str:
    """``0-3, 7``; nothing for launches of no layer."""
    runs: list[list[int]] = []
    for layer in (one for one in layers if one >= 0):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
