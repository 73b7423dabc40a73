"""The page of ``musetrace report --html`` in headless Chromium: a file, by light and by dark, offline."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM, chromium
from playwright.sync_api import Page
from test_probe_page import READABLE, contrast, luminance

from musetrace.cli import main

pytestmark = list(NEEDS_CHROMIUM)

RECORDING = Path(__file__).resolve().parents[2] / "samples" / "recordings" / "mini-h200-tp2"
READ = "h1, h2, p, a, dt, dd, th, td, strong, code, .detail, .mark, figcaption, footer"
TEXTS = """(read) => {
    const texts = [...document.querySelectorAll(read)].map((node) => [node, getComputedStyle(node).color]);
    for (const node of document.querySelectorAll('.xtick text, .ytick text, .xtitle'))
        texts.push([node, getComputedStyle(node).fill]);
    const said = texts.map(([node, colour]) => [node.textContent.trim(), colour]);
    return said.filter(([text]) => text);
}"""
GROUND = "() => getComputedStyle(document.body).backgroundColor"
DRAWN = "() => [...document.querySelectorAll('.plot')].every((plot) => plot._fullLayout && plot.data)"
BARS = "() => [...document.querySelectorAll('.plot .barlayer path')].map((bar) => getComputedStyle(bar).fill)"


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return written(shutil.copytree(RECORDING, folder / "run"), folder)


@pytest.fixture(scope="module")
def hostile_page_path(hostile_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(hostile_path, tmp_path_factory.mktemp("hostile-report"))


def written(run: Path, folder: Path) -> Path:
    file = folder / "report.html"
    assert main(["report", str(run), "--html", str(file)]) == 0
    return file


@contextmanager
def opened(path: Path, width: int, scheme: str) -> Iterator[Page]:
    """The page, drawn. At the end it has asked for nothing and complained of nothing."""
    with chromium(width, 1000, scheme) as browser:
        page = browser.new_page()
        asked: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        yield page
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert asked == [path.as_uri()]
        assert complaints == []


def test_everything_can_be_read_in_both_themes_and_nothing_leaves_the_machine(page_path: Path) -> None:
    with opened(page_path, 1440, "light") as page:
        light = page.evaluate(BARS)
        assert len(light) > 20
        assert luminance(check_readable(page)) > 0.5
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("(light) => JSON.stringify((" + BARS + ")()) !== light", arg=as_json(light))
        assert luminance(check_readable(page)) < 0.5
        assert len(page.evaluate(BARS)) == len(light)
        page.set_viewport_size({"width": 900, "height": 1000})
        page.wait_for_function("() => document.documentElement.scrollWidth === 900")
        page.locator("summary").first.click()
        assert page.locator("details table").first.is_visible()
        page.locator("nav a", has_text="losses").click()
        assert page.locator("section:last-of-type h2").text_content() == "losses"


def check_readable(page: Page) -> str:
    """Every text can be told from the ground; gives the ground's colour."""
    ground = str(page.evaluate(GROUND))
    texts = page.evaluate(TEXTS, READ)
    assert len(texts) > 300
    assert [text for text, colour in texts if contrast(colour, ground) < READABLE] == []
    return ground


def as_json(value: object) -> str:
    """As ``JSON.stringify`` writes it."""
    return json.dumps(value, separators=(",", ":"))


def test_hostile_names_are_text(hostile_page_path: Path, hostile_names: tuple[str, ...]) -> None:
    with opened(hostile_page_path, 1200, "light") as page:
        assert page.locator("img, iframe, object, embed, svg a, form").count() == 0
        assert page.locator("main b, main a").count() == 0
        assert page.locator("script").count() == 3
        text = str(page.evaluate("() => document.body.textContent"))
        for name in hostile_names[:8]:
            assert name in text.replace("\xa0", " "), name
        ticks = {tick.strip() for tick in page.locator(".ytick text").all_text_contents()}
        assert {"attention_wait_kv gemm<128,64>", hostile_names[1]} <= ticks
        assert any("%{" in tick for tick in ticks)
