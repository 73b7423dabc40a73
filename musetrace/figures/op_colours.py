"""The colour of an op, the same in every view: it goes by the op's place in the job table.

Twenty colours in each theme, found by search: every pair differs to readers with normal sight, protanopia,
deuteranopia and tritanopia, ops that are near each other in the table differ more, and each stands out from
the page's ground. The form, not the colour, tells what a span does (see ``theme.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from musetrace.figures.theme import DARK


@dataclass(frozen=True)
class OpColour:
    """One op's colour on the light and on the dark ground, ``#rrggbb``."""

    light: str
    dark: str

    def on(self, theme_name: str | None) -> str:
        """The colour in a theme; that of the light one for anything but ``dark``."""
        return self.dark if theme_name == DARK else self.light


PALETTE = (
    OpColour("#aa5566", "#bbbb55"),
    OpColour("#667733", "#77ccaa"),
    OpColour("#551188", "#8877bb"),
    OpColour("#004433", "#337766"),
    OpColour("#ff5566", "#bb6644"),
    OpColour("#443300", "#bbdd99"),
    OpColour("#cc66bb", "#ffccee"),
    OpColour("#990077", "#bb88aa"),
    OpColour("#006633", "#77aa77"),
    OpColour("#887711", "#aa4411"),
    OpColour("#cc3388", "#994488"),
    OpColour("#aa77dd", "#8844bb"),
    OpColour("#6644bb", "#cc99ff"),
    OpColour("#774400", "#eebb33"),
    OpColour("#779966", "#99ffcc"),
    OpColour("#333355", "#0088ff"),
    OpColour("#999911", "#eeee88"),
    OpColour("#9944aa", "#cc0055"),
    OpColour("#ee6699", "#bb8800"),
    OpColour("#5577ee", "#aaaadd"),
)


def op_colours(ops: Iterable[str]) -> dict[str, OpColour]:
    """A colour for each op, given in the order of the job table; an op that comes again keeps its colour.

    From the 21st op on colours come again.
    """
    names = dict.fromkeys(ops)
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(names)}
