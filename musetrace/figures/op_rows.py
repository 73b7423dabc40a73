"""Where the bars of the op timeline stand: a row per op, in it a lane for each class of work that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LANE_PX = 12
BAR_PX = 8
ROW_PADDING_PX = 7

# Kinds that share a lane, top down: what is asked for, what is waited for, what is done, what goes out.
LANE_KINDS = (("load", "prefetch"), ("wait",), ("compute", "sync"), ("send", "recv"))
_LANE_OF_KIND = {kind: lane for lane, kinds in enumerate(LANE_KINDS) for kind in kinds}


@dataclass(frozen=True)
class Bar:
    """One row of the analysis table, and the y of its bar's middle in px from the top of the plot."""

    values: Mapping[str, Any]
    y_px: float


@dataclass(frozen=True)
class OpRow:
    """An op's row: its name, its edges in px from the top of the plot, and its bars."""

    op: str
    top_px: float
    bottom_px: float
    bars: tuple[Bar, ...]

    @property
    def middle_px(self) -> float:
        """The y of the row's label."""
        return (self.top_px + self.bottom_px) / 2


def arrange(rows: Iterable[Mapping[str, Any]], top_px: float = 0.0) -> list[OpRow]:
    """Place the rows of an ``op_timeline`` table from ``top_px`` on: ops in the order of their first row."""
    by_op: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_op.setdefault(row["op"], []).append(row)
    placed: list[OpRow] = []
    for op, its_rows in by_op.items():
        placed.append(_place(op, its_rows, top_px))
        top_px = placed[-1].bottom_px
    return placed


def _place(op: str, rows: list[Mapping[str, Any]], top_px: float) -> OpRow:
    lanes = sorted({lane_of(row["kind"]) for row in rows})
    first_px = top_px + ROW_PADDING_PX + LANE_PX / 2
    bars = tuple(Bar(row, first_px + LANE_PX * lanes.index(lane_of(row["kind"]))) for row in rows)
    return OpRow(op, top_px, top_px + 2 * ROW_PADDING_PX + LANE_PX * len(lanes), bars)


def lane_of(kind: str) -> int:
    """The number of a kind's lane; one that is not known is drawn as work."""
    return _LANE_OF_KIND.get(kind, _LANE_OF_KIND["compute"])
