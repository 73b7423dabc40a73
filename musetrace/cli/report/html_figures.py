"""The figures of a report's HTML: light ones, and beside each what differs in the dark one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from musetrace.cli.report.document import Picture
from musetrace.errors import MusetraceError

LIGHT, DARK = "light", "dark"

Path = list[str | int]


def require_plotly() -> None:
    """Raises MusetraceError where plotly is not installed."""
    try:
        import plotly.graph_objects  # noqa: F401
    except ModuleNotFoundError as error:
        raise MusetraceError(
            f"--html needs the package {error.name}: pip install 'musetrace[dashboard]', or leave --html out"
        ) from error


def plotly_code() -> str:
    """Plotly's own JavaScript."""
    from plotly.offline import get_plotlyjs

    code: str = get_plotlyjs()
    return code


def figures_json(pictures: Sequence[Picture]) -> tuple[str, list[int]]:
    """The figures as JSON that ends no script element, and the height of each in px."""
    from musetrace.figures.graph_config import GRAPH_CONFIG

    entries, heights = [], []
    for picture in pictures:
        light, dark = (json.loads(picture.draw(name).to_json()) for name in (LIGHT, DARK))
        changes = [[path, value] for path, value in _changes(light, dark, [])]
        entries.append({"id": f"figure-{picture.name}", "figure": light, "dark": changes})
        heights.append(round(light["layout"]["height"]))
    text = json.dumps({"figures": entries, "config": GRAPH_CONFIG}, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c"), heights


def _changes(light: Any, dark: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """(path, value in ``dark``) of every value that differs; both have the same keys."""
    if isinstance(light, dict) and isinstance(dark, dict) and light.keys() == dark.keys():
        for key in light:
            yield from _changes(light[key], dark[key], [*path, key])
    elif isinstance(light, list) and isinstance(dark, list) and len(light) == len(dark):
        for index, (one, other) in enumerate(zip(light, dark, strict=True)):
            yield from _changes(one, other, [*path, index])
    elif light != dark:
        yield path, dark
