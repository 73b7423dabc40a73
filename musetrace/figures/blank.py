"""A figure that says one sentence instead of drawing."""

from __future__ import annotations

import textwrap

import plotly.graph_objects as go

from musetrace.figures.theme import template, theme
from musetrace.figures.wording import shown

_HEIGHT_PX = 180
_LONGEST_SENTENCE = 400
# What a third of a page has room for.
_WRAP = 54


def sentence_figure(sentence: str, theme_name: str) -> go.Figure:
    """An empty figure of a fixed height with ``sentence`` in its middle, shown literally."""
    figure = go.Figure()
    lines = textwrap.wrap(sentence[:_LONGEST_SENTENCE], _WRAP)
    figure.add_annotation(
        text="<br>".join(shown(line, _WRAP) for line in lines),
        showarrow=False,
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        font={"size": 14, "color": theme(theme_name).soft_ink},
    )
    figure.update_layout(
        template=template(theme_name),
        height=_HEIGHT_PX,
        margin={"l": 16, "r": 16, "t": 16, "b": 16},
        xaxis={"visible": False, "fixedrange": True},
        yaxis={"visible": False, "fixedrange": True},
    )
    return figure
