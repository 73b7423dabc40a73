"""Colours, fonts and Plotly templates: one source for the figures and for the page's style sheet.

The colour of a kind of job is the same in every view. Readers with any of the common colour deficiencies can
tell the hues apart, and loads (outlined), waits (hatched) and work (filled) also differ in form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import plotly.graph_objects as go

LIGHT, DARK = "light", "dark"

FONT = (
    '-apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif'
)
MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace'


@dataclass(frozen=True)
class KindStyle:
    """How spans of one kind are drawn.

    ``text`` is for words on the fill, ``flat`` is the colour where there is no room for an outline, ``hatch``
    the hatching's shape (empty: none).
    """

    fill: str
    line: str
    text: str
    flat: str
    hatch: str = ""

    @property
    def bar(self) -> dict[str, Any]:
        """The ``marker`` of a bar of plotly."""
        marker: dict[str, Any] = {
            "color": self.fill,
            "line": {"color": self.line, "width": 1},
            "cornerradius": 1.5,
        }
        if self.hatch:
            marker["pattern"] = {"shape": self.hatch, "fgcolor": self.line, "size": 5, "solidity": 0.25}
        return marker


@dataclass(frozen=True)
class Theme:
    """One of the two looks of the page. ``kinds`` has a style for each of ``job_table.JOB_KINDS``."""

    name: str
    paper: str
    panel: str
    ink: str
    soft_ink: str
    faint_ink: str
    rule: str
    grid: str
    accent: str
    good: str
    poor: str
    bad: str
    kinds: dict[str, KindStyle]


_LIGHT = Theme(
    name=LIGHT,
    paper="#ffffff",
    panel="#f6f7f9",
    ink="#1a1f2b",
    soft_ink="#566072",
    faint_ink="#717a8b",
    rule="#dfe3ea",
    grid="#eceff4",
    accent="#1f5fbf",
    good="#0b7a5e",
    poor="#96610a",
    bad="#b3261e",
    kinds={
        "load": KindStyle("#b9dcf7", "#3f8fd0", "#14405f", "#5fa8e0"),
        "prefetch": KindStyle("#ebf5fd", "#3f8fd0", "#14405f", "#b9dcf7"),
        "wait": KindStyle("#d7dae1", "#9aa1af", "#566072", "#c6cbd5", "/"),
        "compute": KindStyle("#0b7a5e", "#0b7a5e", "#ffffff", "#0b7a5e"),
        "send": KindStyle("#e8920c", "#e8920c", "#2b1a00", "#e8920c"),
        "recv": KindStyle("#a8327d", "#a8327d", "#ffffff", "#a8327d"),
        "sync": KindStyle("#4b46a8", "#4b46a8", "#ffffff", "#4b46a8"),
    },
)
_DARK = Theme(
    name=DARK,
    paper="#12151b",
    panel="#1a1f28",
    ink="#e6e9ef",
    soft_ink="#a3acbb",
    faint_ink="#818b9c",
    rule="#2c333f",
    grid="#222834",
    accent="#7db1f5",
    good="#35c79b",
    poor="#e5ad4e",
    bad="#f28b82",
    kinds={
        "load": KindStyle("#24506f", "#63b3ed", "#e6f4ff", "#3c7fb5"),
        "prefetch": KindStyle("#182a3a", "#63b3ed", "#d7ecfc", "#1f5480"),
        "wait": KindStyle("#353c49", "#6b7585", "#c3cad6", "#474e5b", "/"),
        "compute": KindStyle("#35c79b", "#35c79b", "#0d1117", "#35c79b"),
        "send": KindStyle("#f0a33a", "#f0a33a", "#0d1117", "#f0a33a"),
        "recv": KindStyle("#f2a7d8", "#f2a7d8", "#0d1117", "#f2a7d8"),
        "sync": KindStyle("#9a94f5", "#9a94f5", "#0d1117", "#9a94f5"),
    },
)
THEMES = {LIGHT: _LIGHT, DARK: _DARK}


def theme(name: str | None) -> Theme:
    """The theme of that name, the light one for anything else."""
    return THEMES.get(name or LIGHT, _LIGHT)


@cache
def template(name: str) -> go.layout.Template:
    """The Plotly template of a theme: transparent ground, thin grid on x only, numbers in the page's font."""
    look = theme(name)
    axis = {
        "gridcolor": look.grid,
        "linecolor": look.rule,
        "zeroline": False,
        "tickfont": {"color": look.soft_ink, "size": 12},
        "title": {"font": {"color": look.soft_ink, "size": 12}, "standoff": 8},
        "ticks": "",
        "automargin": False,
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 12, "color": look.ink},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": {**axis, "showgrid": False},
            "hoverlabel": {
                "bgcolor": look.panel,
                "bordercolor": look.rule,
                "font": {"family": MONO, "size": 12, "color": look.ink},
                "align": "left",
                "namelength": 0,
            },
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": look.faint_ink, "activecolor": look.accent},
            "showlegend": False,
            "dragmode": "zoom",
            "hovermode": "closest",
        }
    )


def style_sheet() -> str:
    """CSS custom properties of both themes: the system's choice, unless the root's ``data-theme`` differs."""
    light, dark = _properties(_LIGHT), _properties(_DARK)
    # "html:root" outweighs the ":root" of the controls' own style sheet, which is loaded later.
    return (
        f"html:root{{--font:{FONT};--mono:{MONO};{light}color-scheme:light}}\n"
        f"@media (prefers-color-scheme: dark){{html:root{{{dark}color-scheme:dark}}}}\n"
        f'html:root[data-theme="{LIGHT}"]{{{light}color-scheme:light}}\n'
        f'html:root[data-theme="{DARK}"]{{{dark}color-scheme:dark}}\n'
    )


def _properties(look: Theme) -> str:
    plain = (
        "paper",
        "panel",
        "ink",
        "soft_ink",
        "faint_ink",
        "rule",
        "grid",
        "accent",
        "good",
        "poor",
        "bad",
    )
    values = {name.replace("_", "-"): getattr(look, name) for name in plain}
    for kind, style in look.kinds.items():
        values |= {f"{kind}-fill": style.fill, f"{kind}-line": style.line}
    return "".join(f"--{name}:{value};" for name, value in values.items())
