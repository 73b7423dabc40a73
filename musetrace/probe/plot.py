"""The four curves of a GPU as one page that needs no network: it has plotly's code in it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from musetrace.errors import MusetraceError
from musetrace.probe.document import facts_of

# Seen on white and on nearly black, and kept apart by form too: each curve has its own marker and dash.
_COLOURS = ("#2f83c6", "#d97c0b", "#0f9a76", "#b04c98")
_MARKERS = ("circle", "square", "diamond", "triangle-up")
_DASHES = ("solid", "dash", "dot", "dashdot")

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1a1f2b; --soft: #566072; --grid: #dfe3ea; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #12151b; --ink: #e6e9ef; --soft: #a3acbb; --grid: #2c333f; }
}
body { margin: 0 auto; max-width: 1280px; padding: 16px 24px; background: var(--paper); color: var(--ink);
  font: 14px/1.45 -apple-system, BlinkMacSystemFont, "Segoe UI", "Liberation Sans", Arial, sans-serif; }
h1 { font-size: 20px; margin: 0; } p { color: var(--soft); margin: 4px 0 12px; }
.curves { display: grid; gap: 8px 24px;
  grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr)); }
.curves > div { min-width: 0; }
.js-plotly-plot .infolayer text, .js-plotly-plot .xtick text, .js-plotly-plot .ytick text
  { fill: var(--ink) !important; }
.js-plotly-plot .gridlayer path { stroke: var(--grid) !important; }
.js-plotly-plot .zerolinelayer path, .js-plotly-plot .xlines-above, .js-plotly-plot .ylines-above
  { stroke: var(--soft) !important; }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>musetrace probe: {name}</title>
<style>{style}</style>
<script>{code}</script>
</head>
<body>
<h1>musetrace probe: {name}</h1>
<p>measured {at}; medians, bars from p10 to p90</p>
<div class="curves">
{figures}
</div>
</body>
</html>
"""


@dataclass(frozen=True)
class Curve:
    """One line of a figure: the facts with this name and case, over what was varied in them."""

    label: str
    case: str


@dataclass(frozen=True)
class Figure:
    """One figure: where its facts are, what its axes say, and ``scale`` from their unit to the axis'."""

    title: str
    experiment: str
    fact: str
    x_title: str
    y_title: str
    curves: Sequence[Curve]
    scale: float = 1.0


FIGURES = (
    Figure(
        "Stream ceiling",
        "stream",
        "rate",
        "bytes in flight per SM (KiB)",
        "all SMs together (TB/s)",
        (Curve("bulk copies of 16 KiB", ""),),
    ),
    Figure(
        "Hop from SM to SM",
        "hop",
        "one_way",
        "bulk bytes in flight per SM (KiB)",
        "one way (ns)",
        (Curve("Lamport slot", "Lamport slot"), Curve("release, acquire", "release, acquire")),
    ),
    Figure(
        "Fence",
        "fence",
        "cost",
        "bulk bytes in flight per SM (KiB)",
        "one fence (us)",
        (
            Curve("__threadfence", "__threadfence, nothing stored"),
            Curve("__threadfence_system", "__threadfence_system, nothing stored"),
            Curve("store, __threadfence", "16 bytes stored, then __threadfence"),
        ),
        1e-3,
    ),
    Figure(
        "Instruction cache",
        "instruction_cache",
        "cycles_per_instruction",
        "straight-line code (KiB)",
        "cycles per instruction of a warp",
        (
            Curve("1 warp, one body", "alone, 1 warp"),
            Curve("12 warps, one body", "alone, 12 warps"),
            Curve("1 warp, two bodies stitched", "stitched, 1 warp"),
            Curve("12 warps, two bodies stitched", "stitched, 12 warps"),
        ),
    ),
)


def require_plotly() -> None:
    """Raises MusetraceError where plotly is not installed."""
    try:
        import plotly.graph_objects  # noqa: F401
    except ModuleNotFoundError as error:
        raise MusetraceError(
            f"--plot needs the package {error.name}: pip install 'musetrace[dashboard]', or leave --plot out"
        ) from error


def write_plot(probed: dict[str, Any]) -> str:
    """The page's text: a figure for each of the four experiments that was measured."""
    import plotly.io
    from plotly.offline import get_plotlyjs

    parts: list[str] = []
    for figure in FIGURES:
        drawn = _drawn(figure, facts_of(probed, figure.experiment))
        if drawn is None:
            parts.append(f"<p>{html.escape(figure.title)}: not measured</p>")
            continue
        options = {"displaylogo": False, "responsive": True}
        parts.append(plotly.io.to_html(drawn, include_plotlyjs=False, full_html=False, config=options))
    name, at = html.escape(str(probed["device"]["name"])), html.escape(str(probed["measured_at"]))
    return _PAGE.format(name=name, at=at, style=_STYLE, code=get_plotlyjs(), figures="\n".join(parts))


def _drawn(figure: Figure, facts: Sequence[dict[str, Any]]) -> Any:
    """The figure, or None without facts for it."""
    import plotly.graph_objects as go

    traces = []
    for index, curve in enumerate(figure.curves):
        points = [fact for fact in facts if fact["name"] == figure.fact and fact["case"] == curve.case]
        if points:
            traces.append(_trace(go, figure, curve, sorted(points, key=lambda fact: fact["at"]), index))
    if not traces:
        return None
    drawn = go.Figure(traces)
    axis = {"rangemode": "tozero", "showline": True, "automargin": True}
    drawn.update_layout(
        title={"text": figure.title},
        xaxis={**axis, "title": {"text": figure.x_title}},
        yaxis={**axis, "title": {"text": figure.y_title}},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": -0.25},
        showlegend=True,
        height=420,
        margin={"l": 60, "r": 16, "t": 48, "b": 48},
    )
    return drawn


def _trace(go: Any, figure: Figure, curve: Curve, points: Sequence[dict[str, Any]], index: int) -> Any:
    median, low, high = ([fact[name] * figure.scale for fact in points] for name in ("median", "p10", "p90"))
    colour = _COLOURS[index]
    return go.Scatter(
        x=[fact["at"] for fact in points],
        y=median,
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [above - middle for above, middle in zip(high, median, strict=True)],
            "arrayminus": [middle - below for below, middle in zip(low, median, strict=True)],
            "thickness": 1,
        },
        name=curve.label,
        mode="lines+markers",
        cliponaxis=False,
        line={"color": colour, "dash": _DASHES[index]},
        marker={"symbol": _MARKERS[index], "size": 8},
        customdata=[[fact["n"]] for fact in points],
        hovertemplate="%{x}: %{y:.4g} (n %{customdata[0]})",
    )
