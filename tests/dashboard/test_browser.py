"""The page in headless Chromium: what a user sees, and what leaves the machine (nothing)."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hostile import HOSTILE

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from playwright.sync_api import Page
from site_visits import OP_DATA, Site

from musetrace.dashboard.views import VIEWS
from musetrace.figures.theme import theme
from musetrace.figures.wording import shown

pytestmark = list(NEEDS_CHROMIUM)


def test_the_kind_picker_changes_rows_and_address_and_back_goes_back(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "ops") as visit:
        assert {"attention", "stop1", "stop5", "kv_write"} <= set(visit.ticks())
        assert "losses\nnone" in visit.page.locator(".top").inner_text()
        visit.choose("kind", "entry")
        assert visit.ticks() == ["entry", "qkv", "kv_write"]
        assert visit.page.url.endswith("/ops?kind=entry")
        visit.page.go_back()
        visit.page.wait_for_function("() => location.search === ''")
        visit.settle()
        assert "attention" in visit.ticks()


def test_a_link_restores_the_view(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "ops") as visit:
        visit.choose("kind", "global")
        visit.choose("rank", "rank 1")
        address, ticks = visit.page.url, visit.ticks()
    with site.visit(decode_path, address.partition("/ops")[1][1:] + "?" + urlsplit(address).query) as visit:
        chosen = {"kind": "global", "rank": "rank 1", "step": "all steps"}
        assert {field: visit.picked(field) for field in chosen} == chosen
        assert visit.ticks() == ticks


def test_a_second_run_is_chosen_in_the_header(site: Site, decode_path: Path, tiny_path: Path) -> None:
    with site.visit(decode_path, "ops", tiny_path) as visit:
        assert "2 ranks" in visit.page.locator(".top").inner_text()
        visit.page.locator("#run-picker").click()
        visit.page.locator(".dash-dropdown-option", has_text=tiny_path.name).click()
        visit.settle()
        assert "1 rank " in visit.page.locator(".top").inner_text()
        assert visit.ticks() == ["attention", "stop1"]
        assert visit.page.url.endswith("/ops?run=1")
        visit.page.go_back()
        visit.settle()
        assert "2 ranks" in visit.page.locator(".top").inner_text()


def test_keys_change_the_view_and_the_theme_and_tell_themselves(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "ops") as visit:
        keyboard = visit.page.keyboard
        keyboard.press("?")
        assert "go to a view" in visit.page.locator("#help").inner_text()
        keyboard.press("Escape")
        assert visit.page.locator("#help").count() == 0
        keyboard.press(str(1 + [view.name for view in VIEWS].index("launches")))
        visit.settle()
        assert visit.page.url.endswith("/launches")
        assert visit.page.title().startswith("Launches")


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_graph_is_saved_as_a_picture(site: Site, tiny_path: Path, suffix: str) -> None:
    with site.visit(tiny_path, "ops") as visit:
        with visit.page.expect_download() as saved:
            visit.page.locator(f".save-picture[value={suffix}]").click()
        content = Path(saved.value.path()).read_bytes()
        assert content.startswith(b"\x89PNG" if suffix == "png" else b"<svg")


def test_hover_shows_exact_nanoseconds(site: Site, tiny_path: Path) -> None:
    with site.visit(tiny_path, "ops") as visit:
        compute_y = visit.page.evaluate(f"() => {OP_DATA}.find(t => t.name === 'compute').y[0]")
        visit.hover("op-graph", 600.0, compute_y)
        label = visit.page.locator("#op-graph .hovertext")
        label.wait_for()
        # 1,000,123,461 and 1,001,234,567 with the launch's begin, 1,000,000,000, taken off.
        text = label.text_content() or ""
        assert text.count("123,461") == 3
        assert text.count("1,234,567") == 3
        assert "1,111,106" in text
        assert "1 of 1 blocks" in text


def has_look(page: Page, name: str) -> None:
    """Waits until the page's ground and the compute bars have the colours of a theme."""
    look = theme(name)
    ground = f"rgb({', '.join(str(int(look.paper[i : i + 2], 16)) for i in (1, 3, 5))})"
    page.wait_for_function(
        "([ground, fill]) => getComputedStyle(document.body).backgroundColor === ground"
        f" && {OP_DATA}.find(t => t.name === 'compute').marker.color === fill",
        arg=[ground, look.kinds["compute"].fill],
        timeout=10_000,
    )


def test_the_theme_follows_the_system_and_the_button(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "ops") as visit:
        page, toggle = visit.page, visit.page.locator("#theme-toggle")
        has_look(page, "light")
        page.emulate_media(color_scheme="dark")
        has_look(page, "dark")
        toggle.click()
        has_look(page, "light")
        toggle.click()
        page.emulate_media(color_scheme="light")
        has_look(page, "dark")
        page.reload()
        visit.settle()
        has_look(page, "dark")
        toggle.click()
        has_look(page, "light")


def test_hostile_names_are_shown_literally_and_do_nothing(site: Site, hostile_path: Path) -> None:
    with site.visit(hostile_path, "ops") as visit:
        page = visit.page
        visit.choose("kind", HOSTILE[0])
        ticks = visit.ticks()
        for name in ("<b>bold</b>", "gemm<128,64>", "%{x}", "&lt;b&gt;", "javascript:alert(3)"):
            assert name in ticks
        assert HOSTILE[0] in page.locator(".top").inner_text()
        rows = page.evaluate(
            f"() => {OP_DATA}.filter(t => t.type === 'bar')"
            ".flatMap(t => t.customdata.map((d, i) => [d[0], t.base[i] + t.x[i] / 2, t.y[i]]))"
        )
        for name in ("%{x}", "%{customdata[0]}", "<b>bold</b>"):
            _, x, y = next(row for row in rows if row[0] == shown(name))
            visit.hover("op-graph", x, y)
            page.wait_for_function(
                "(name) => document.querySelector('#op-graph .hovertext')?.textContent.includes(name)",
                arg=name,
            )
        assert page.locator("img, a[href*=evil], svg a, [onerror], [onload]").count() == 0


def test_an_empty_run_says_so_whatever_the_address_asks_for(site: Site, empty_path: Path) -> None:
    with site.visit(empty_path, "ops?kind=%3Cimg%20src=x%20onerror=alert(1)%3E&rows=../../etc") as visit:
        assert "Nothing was stamped" in (visit.page.locator("#op-graph").text_content() or "")
        assert "incomplete" in visit.page.locator(".top").inner_text()


def test_the_page_fits_a_narrow_window(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "ops") as visit:
        for width in (900, 1440):
            visit.page.set_viewport_size({"width": width, "height": 900})
            visit.page.wait_for_function(
                "(width) => Math.abs(document.querySelector('#op-graph .main-svg').clientWidth - width) < 80",
                arg=width,
            )
            assert visit.page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
