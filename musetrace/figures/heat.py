"""Heat maps: one hue from the page's colour up, so that the order needs no legend."""

from __future__ import annotations

from typing import Any

from musetrace.figures.theme import Theme

_FAINTEST = 0.08  # of the hue, so that the least is still a cell
_STEPS = 24


def heat_scale(look: Theme, hue: str, lifted: bool = False) -> list[list[Any]]:
    """A colour scale of plotly from nearly the page's colour to ``hue``.

    ``lifted``: it rises as the square root does, so that a few large values leave the small ones visible.
    """
    steps = [step / _STEPS for step in range(_STEPS + 1)] if lifted else [0.0, 1.0]
    return [[at, _mixed(look.paper, hue, _FAINTEST + (1 - _FAINTEST) * at**0.5)] for at in steps]


def _mixed(first: str, second: str, part: float) -> str:
    """``#rrggbb`` with so much of the second."""
    pairs = [(int(first[at : at + 2], 16), int(second[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in pairs)
