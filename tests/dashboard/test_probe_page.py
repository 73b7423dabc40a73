"""The page of ``musetrace probe --plot`` in headless Chromium: read by light and by dark, offline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM, chromium
from playwright.sync_api import Page

from musetrace.probe.document import document
from musetrace.probe.facts import Fact, Outcome
from musetrace.probe.plot import FIGURES, write_plot

pytestmark = list(NEEDS_CHROMIUM)

# Everything that is to be read: element, and the colour it is painted in.
TEXTS = """() => {
    const texts = [...document.querySelectorAll('h1, p')].map((node) => [node, getComputedStyle(node).color]);
    for (const node of document.querySelectorAll('.js-plotly-plot .main-svg text'))
        if (node.textContent) texts.push([node, getComputedStyle(node).fill]);
    return texts.map(([node, colour]) => [node.textContent, colour]);
}"""
LINES = """() => [...document.querySelectorAll('.js-plotly-plot .scatterlayer .js-line')]
    .map((node) => getComputedStyle(node).stroke)"""
READABLE, VISIBLE = 4.5, 3.0  # WCAG 2.2: text, graphical objects


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outcomes = []
    for figure in FIGURES:
        facts = [
            Fact(figure.fact, "", 9, y * (number + 1), y, 9 * y, case=curve.case, at=16 * y)
            for number, curve in enumerate(figure.curves)
            for y in (1, 2, 3)
        ]
        outcomes.append(Outcome(figure.experiment, "", "measured", 1.0, facts))
    path = tmp_path_factory.mktemp("probe") / "page.html"
    path.write_text(write_plot(document({"kind": "cuda", "name": "NVIDIA H200"}, outcomes)), "utf-8")
    return path


def luminance(colour: str) -> float:
    """Relative luminance of a CSS colour ``rgb(r, g, b)``, as WCAG defines it."""
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def check_page(page: Page) -> str:
    """Everything can be told from the ground; gives the ground's colour."""
    ground = str(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    texts = page.evaluate(TEXTS)
    shown = {text for text, _ in texts}
    for figure in FIGURES:
        assert {figure.title, figure.x_title, figure.y_title} <= shown
        assert {curve.label for curve in figure.curves} <= shown
    assert [text for text, colour in texts if contrast(colour, ground) < READABLE] == []
    lines = page.evaluate(LINES)
    assert len(lines) == sum(len(figure.curves) for figure in FIGURES)
    assert min(contrast(line, ground) for line in lines) >= VISIBLE
    return ground


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_read_by_light_and_by_dark_and_asks_for_nothing(page_path: Path, scheme: str) -> None:
    with chromium(1300, 1000, scheme) as browser:
        page = browser.new_page()
        asked: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_path.as_uri())
        page.wait_for_function(
            f"() => document.querySelectorAll('.js-plotly-plot .ytick').length >= {2 * len(FIGURES)}"
        )
        ground = check_page(page)
        assert (luminance(ground) > 0.5) == (scheme == "light")
        assert asked == [page_path.as_uri()]
        assert complaints == []
        widths = page.evaluate(
            "() => [...document.querySelectorAll('.js-plotly-plot')].map((plot) => "
            "[plot.getBoundingClientRect().width, plot._fullLayout.width])"
        )
        assert all(drawn <= place + 1 for place, drawn in widths), "a figure lies over its neighbour"
