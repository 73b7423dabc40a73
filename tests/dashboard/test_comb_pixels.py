"""A comb looks like the bars that it stands for: both are drawn in Chromium, and their pixels compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plotly
import plotly.graph_objects as go
import pytest

pytest.importorskip("playwright")

from chromium import chromium, chromium_path
from test_lanes import made

from musetrace.figures.block_lanes import bar_trace, comb_trace
from musetrace.figures.theme import theme

KINDS = ("wait", "load", "compute")
WIDTH, HEIGHT, ROWS, SPANS = 900, 300, 6, 240
LIMITS = ((0, ROWS), (0, 90_000), (200, 4_000))  # row, begin, length
COMPARE = """async ([one, other, width, height]) => {
    const pixels = async (figure) => {
        const div = document.body.appendChild(document.createElement('div'));
        await Plotly.newPlot(div, figure);
        const image = new Image();
        image.src = await Plotly.toImage(div, {format: 'png', width, height});
        await image.decode();
        const canvas = Object.assign(document.createElement('canvas'), {width, height});
        const context = canvas.getContext('2d', {willReadFrequently: true});
        context.drawImage(image, 0, 0);
        return context.getImageData(0, 0, width, height).data;
    };
    const a = await pixels(one), b = await pixels(other);
    let apart = 0, drawn = 0;
    for (let i = 0; i < a.length; i += 4) {
        apart += Math.max(...[0, 1, 2].map((c) => Math.abs(a[i + c] - b[i + c]))) > 100;
        drawn += Math.min(a[i], a[i + 1], a[i + 2]) < 220;
    }
    return [apart / (width * height), drawn / (width * height)];
}"""


def figure(draw: Callable[..., Any]) -> dict[str, Any]:
    """Random spans of three kinds, overlapping ones among them, as ``draw`` draws them."""
    random = np.random.default_rng(0)
    places = zip(*(random.integers(low, high, SPANS).tolist() for low, high in LIMITS), strict=True)
    rows = [(row, begin, begin + length, KINDS[i % 3]) for i, (row, begin, length) in enumerate(places)]
    spans = made(rows, lanes=ROWS)
    kinds = np.array([spans.kind_of(index) for index in range(SPANS)])
    drawn = go.Figure([draw(spans, np.flatnonzero(kinds == kind), kind, theme("light")) for kind in KINDS])
    # The outline and the fill that bars have beyond the comb.
    for kind in KINDS:
        of_kind = {"type": "bar", "name": kind}
        flat = theme("light").kinds[kind].flat
        drawn.update_traces(marker_line_width=0, marker_color=flat, selector=of_kind)
    drawn.update_layout(
        barmode="overlay",
        showlegend=False,
        margin=dict.fromkeys("lrtb", 0),
        xaxis={"range": [0, 95], "visible": False},
        yaxis={"range": [ROWS, 0], "visible": False},
        plot_bgcolor="white",
        width=WIDTH,
        height=HEIGHT,
    )
    result: dict[str, Any] = json.loads(drawn.to_json())
    return result


@pytest.mark.browser
@pytest.mark.skipif(chromium_path() is None, reason="no Chromium: install it, or name it in CHROMIUM")
def test_a_comb_looks_like_the_bars() -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")
        apart, drawn = page.evaluate(COMPARE, [figure(bar_trace), figure(comb_trace), WIDTH, HEIGHT])
    assert drawn > 0.05, "nothing is drawn"
    # Edges differ in the share of a pixel that they cover; a wedge across the rows would be far more.
    assert apart < 0.002
