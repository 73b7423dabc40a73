"""Which blocks are idle for what: a row for each cause, a column for each block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import pyarrow as pa

from musetrace.figures.axes import left_margin_px
from musetrace.figures.heat import heat_scale
from musetrace.figures.theme import Theme, template, theme
from musetrace.figures.wording import shown

Cells = npt.NDArray[np.float64]

MOST_CAUSES = 16

_ROW_PX, _TOP_PX, _BOTTOM_PX, _RIGHT_PX = 22, 8, 42, 24
_LABEL_CHARACTERS = 28
_MOST_GAPS = 200
_BLOCK_TICKS = 8
_HOVER = (
    "<b>%{text}</b><br>rank %{customdata[0]}, block %{customdata[1]}<br>%{customdata[2]:,d} ns OFF<br>"
    "%{z:.2%} of the block's time<extra></extra>"
)
_SIGN = "\N{PLUS-MINUS SIGN}"


def idle_blocks_figure(
    table: pa.Table, causes: Sequence[tuple[str, str]], chosen: str, theme_name: str
) -> go.Figure:
    """Draw an answer of ``musetrace.analysis.idle_blocks``: stronger is a larger share of the block's time.

    ``causes`` are the rows from the top, (``wait`` or else ``cause``, what it is called), at most
    MOST_CAUSES; others are not drawn. The row of the ``chosen`` one has a frame. Columns are the blocks of
    all ranks, ranks one after the other; a cell's y is its cause's place.
    """
    look = theme(theme_name)
    rows = table.to_pylist()
    blocks = sorted({(row["rank"], row["block"]) for row in rows})
    drawn = list(causes[:MOST_CAUSES])
    share, numbers = _cells(rows, drawn, blocks)
    names = [name for _, name in drawn]
    unknown = any(row["total_uncertainty_ns"] is None for row in rows)
    off = f"{_SIGN} unknown" if unknown else f"{_SIGN} %{{customdata[3]:,d}} ns"
    figure = go.Figure(_heat(share, numbers, names, off, look))
    figure.update_layout(
        template=template(theme_name),
        height=_ROW_PX * max(len(drawn), 1) + _TOP_PX + _BOTTOM_PX,
        margin={
            "l": left_margin_px([name[:_LABEL_CHARACTERS] for name in names]),
            "r": _RIGHT_PX,
            "t": _TOP_PX,
            "b": _BOTTOM_PX,
        },
        xaxis={"range": [-0.5, max(len(blocks), 1) - 0.5], "showgrid": False, **_ticks(blocks)},
        yaxis={
            "range": [max(len(drawn), 1) - 0.5, -0.5],
            "fixedrange": True,
            "tickvals": list(range(len(drawn))),
            "ticktext": [shown(name, _LABEL_CHARACTERS) for name in names],
            "ticklabelstandoff": 8,
        },
    )
    _mark(figure, [key for key, _ in drawn], chosen, blocks, look)
    return figure


def _cells(
    rows: Sequence[Mapping[str, Any]],
    causes: Sequence[tuple[str, str]],
    blocks: Sequence[tuple[int, int]],
) -> tuple[Cells, Cells]:
    """Shares, float64[causes, blocks], and rank, block, ns and their uncertainty of each, [..., 4].

    NaN where there is no idle time.
    """
    place = {key: at for at, (key, _) in enumerate(causes)}
    column = {block: at for at, block in enumerate(blocks)}
    share = np.full((len(causes), len(blocks)), np.nan)
    numbers = np.zeros((*share.shape, 4))
    for row in rows:
        key = row["wait"] or row["cause"]
        if key in place:
            at = place[key], column[row["rank"], row["block"]]
            # Kernels may have waits of one name.
            share[at] = row["share_of_time"] + (0 if np.isnan(share[at]) else share[at])
            numbers[at][:2] = row["rank"], row["block"]
            numbers[at][2:] += row["total_ns"], row["total_uncertainty_ns"] or 0
    return share, numbers


def _heat(share: Cells, numbers: Cells, names: Sequence[str], off: str, look: Theme) -> go.Heatmap:
    some = share[~np.isnan(share)]
    gap = 1 if share.shape[1] <= _MOST_GAPS else 0
    return go.Heatmap(
        z=share,
        x=np.arange(share.shape[1]),
        y=np.arange(share.shape[0]),
        zmin=0.0,
        zmax=float(some.max()) if len(some) else 1.0,
        colorscale=heat_scale(look, look.poor, lifted=True),
        showscale=False,
        xgap=gap,
        ygap=2,
        customdata=numbers,
        text=[[shown(name)] * share.shape[1] for name in names],
        hovertemplate=_HOVER.replace("OFF", off),
        hoverongaps=False,
        name="idle",
    )


def _ticks(blocks: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Where ranks begin if there are several, else some blocks."""
    ranks = list(dict.fromkeys(rank for rank, _ in blocks))
    if len(ranks) > 1:
        first = {rank: at for at, (rank, _) in reversed(list(enumerate(blocks)))}
        at = [first[rank] for rank in ranks]
        return {"tickvals": at, "ticktext": [f"rank {rank}" for rank in ranks], "title": {"text": "block"}}
    every = max(-(-len(blocks) // _BLOCK_TICKS), 1)
    at = list(range(0, len(blocks), every))
    return {"tickvals": at, "ticktext": [str(blocks[one][1]) for one in at], "title": {"text": "block"}}


def _mark(
    figure: go.Figure, keys: Sequence[str], chosen: str, blocks: Sequence[tuple[int, int]], look: Theme
) -> None:
    """A frame around the row of the chosen cause, and lines between ranks."""
    if chosen in keys:
        at = keys.index(chosen)
        figure.add_shape(
            type="rect",
            **{"x0": -0.5, "x1": len(blocks) - 0.5, "y0": at - 0.5, "y1": at + 0.5},
            line={"color": look.accent, "width": 1.5},
        )
    for at in range(1, len(blocks)):
        if blocks[at][0] != blocks[at - 1][0]:
            figure.add_shape(
                type="line",
                **{"x0": at - 0.5, "x1": at - 0.5, "y0": -0.5, "y1": len(keys) - 0.5},
                line={"color": look.faint_ink, "width": 1},
            )
