"""What a figure draws, as numbers."""

from __future__ import annotations

from typing import Any


def trace(figure: Any, name: str) -> Any:
    """The first trace of a name."""
    return next(found for found in figure.data if found.name == name)


def extents(figure: Any) -> dict[int, tuple[float, float]]:
    """The ends of the line of each row: of a comb with one tooth a row, which takes six points."""
    x, y = trace(figure, "ends").x, trace(figure, "ends").y
    rows = range(len(x) // 6)
    return {round(float(y[6 * row + 1])): (float(x[6 * row + 1]), float(x[6 * row + 3])) for row in rows}
