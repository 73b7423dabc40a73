"""The block view in headless Chromium: the mouse, rows, steps, names, what cannot be shown, looks."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from playwright.sync_api import Route
from site_visits import Site
from timeline_visits import Timeline, every_span

from musetrace.figures.theme import theme
from musetrace.store import Run
from tests.unit.attached_run import record_run

pytestmark = list(NEEDS_CHROMIUM)


def test_the_mouse_zooms_pans_and_moves_the_minimaps_brush(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "timeline") as visit:
        timeline = Timeline(visit)
        timeline.point(3, 1_200_000)
        timeline.page.mouse.wheel(0, -600)
        timeline.settle()
        begin, end = timeline.window
        assert begin < 1_200_000 < end < timeline.app("run.to")
        timeline.page.mouse.down()
        x, y = timeline.place(3, 1_200_000)
        timeline.page.mouse.move(x - 200, y, steps=4)
        timeline.page.mouse.up()
        timeline.settle()
        assert timeline.place(3, 1_200_000)[0] == pytest.approx(x - 200, abs=2)
        assert timeline.app("details") is None  # a drag is no click
        box = timeline.page.locator(".tl-minimap").bounding_box()
        assert box is not None
        timeline.page.mouse.click(box["x"] + box["width"] * 0.1, box["y"] + 10)
        timeline.settle()
        assert timeline.window[0] == pytest.approx(0, abs=1)
        timeline.press("s", "s", "s", "s", "s", "s")
        assert timeline.window == (timeline.app("run.from"), timeline.app("run.to"))


def test_rows_are_blocks_or_the_warps_of_one(site: Site, decode_path: Path, decode: Run) -> None:
    with site.visit(decode_path, "timeline?rows=warps&block=r1b2") as visit:
        timeline = Timeline(visit)
        warps = {span["warp"] for span in every_span(decode) if (span["rank"], span["block"]) == (1, 2)}
        assert {row["warp"] for row in timeline.app("rows")} >= warps
        assert timeline.app("rows.every((row) => row.rank === 1 && row.block === 2)")
        timeline.page.locator(".tl-select").first.select_option("blocks")
        timeline.settle()
        assert timeline.app("rows.length") == 8
        timeline.page.locator(".tl-select").nth(1).select_option("1")
        timeline.settle()
        assert timeline.app("rows.length") == 4
        assert timeline.told().endswith("/timeline?ranks=1")


def test_a_step_and_layers_are_gone_to_and_a_run_that_grows_stays_in_place(
    site: Site, decode_path: Path, decode: Run
) -> None:
    with site.visit(decode_path, "timeline") as visit:
        timeline = Timeline(visit)
        visit.page.keyboard.press("?")
        assert "fit the chosen span" in visit.page.locator("#help").inner_text()
        visit.page.keyboard.press("Escape")
        visit.page.get_by_label("step", exact=True).select_option("2")
        layers = visit.page.get_by_label("layers", exact=True)
        layers.fill("1-2")
        layers.press("Enter")
        timeline.settle()
        origin = min(base for rank in decode.ranks for base in decode.steps(rank)["base_ns"].to_pylist())
        chosen = [
            row for rank in decode.ranks for row in decode.launches(rank).to_pylist()
            if row["step"] == 2 and row["layer"] in (1, 2)
        ]  # fmt: skip
        assert timeline.window == (
            min(row["begin_ns"] for row in chosen) - origin,
            max(row["end_ns"] for row in chosen) - origin,
        )
        timeline.press("+", "+")
        before = timeline.app("view")
        visit.page.evaluate("() => dash_clientside.set_props('run', {data: {index: 0, version: 1}})")
        timeline.settle()
        assert timeline.app("view") == before


def test_a_run_of_kernels_has_launches_and_no_layers(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = record_run(tmp_path_factory.mktemp("attached") / "run")
    with site.visit(run.path, "timeline?span=0.1.0") as visit:
        timeline = Timeline(visit)
        text = timeline.page.locator("#timeline").inner_text()
        assert "launches" in text
        assert "step 1, launch 0, gemm" in text
        assert "layer" not in text


def test_hostile_names_are_text_everywhere(
    site: Site, hostile_path: Path, hostile_names: tuple[str, ...]
) -> None:
    with site.visit(hostile_path, "timeline") as visit:
        timeline = Timeline(visit)
        page = visit.page
        legend = page.locator(".tl-legend").inner_text()
        for name in ("<b>bold</b>", "gemm<128,64>", "%{x}", "&lt;b&gt;", "javascript:alert(3)"):
            assert name in legend
        name = hostile_names[0]
        page.keyboard.press("/")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        timeline.settle()
        assert name in page.locator(".tl-details").inner_text()
        assert name in parse_qs(urlsplit(timeline.told()).query)["find"]
        with page.expect_download() as saved:
            page.get_by_role("button", name="SVG", exact=True).click()
        picture = Path(saved.value.path()).read_text(encoding="utf-8")
        assert "<img" not in picture
        assert "<script" not in picture
        assert page.evaluate(
            "(text) => !new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror')",
            picture,
        )
        with page.expect_download() as saved:
            page.get_by_role("button", name="PNG", exact=True).click()
        assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
        assert page.locator("#view img, a[href*=evil], [onerror], [onload]").count() == 0


def test_a_picture_that_is_still_being_made_is_asked_for_again(site: Site, decode_path: Path) -> None:
    asked = []

    def not_yet(route: Route) -> None:
        asked.append(route.request.url)
        header = {
            "seq": len(asked), "mode": "raster", "from": 0, "to": 1, "rows": [0, 8], "strips": 4,
            "bins": [1, 1], "count": 0, "sampled": False, "note": "The picture is being made.",
            "pending": True,
            "arrays": [{"name": name, "dtype": "uint8", "length": 4} for name in ("op", "share")],
        }  # fmt: skip
        text = json.dumps(header).encode()
        text += b" " * (-(4 + len(text)) % 8)
        nothing = bytes([255] * 4 + [0] * 4) + bytes(8)
        route.fulfill(body=len(text).to_bytes(4, "little") + text + nothing)

    with site.visit(decode_path, "ops") as visit:
        visit.page.route("**/api/window?*", not_yet)
        visit.page.get_by_role("link", name="Timeline").click()
        visit.page.get_by_text("The picture is being made.").wait_for()
        visit.page.unroute("**/api/window?*")
        timeline = Timeline(visit)
        timeline.wait_for("app.answer && app.answer.count > 1000")
        timeline.settle()
        assert timeline.app("answer.pending") is False
        assert "being made" not in timeline.page.locator(".tl-note").inner_text()


def test_what_the_address_cannot_mean_is_left_out_and_an_empty_run_says_so(
    site: Site, decode_path: Path, empty_path: Path
) -> None:
    odd = "from=x&to=%3Cb%3E&rows=../etc&ranks=9,x&span=a.b.c&area=1&measure=1&row_from=-1&block=r0"
    with site.visit(decode_path, "timeline?" + odd) as visit:
        timeline = Timeline(visit)
        assert timeline.window == (timeline.app("run.from"), timeline.app("run.to"))
    with site.visit(empty_path, "timeline") as visit:
        visit.page.get_by_text("so there is no timeline to draw").wait_for()


def test_the_view_is_dark_narrow_and_small(site: Site, decode_path: Path) -> None:
    ground = """() => {
        const {app} = document.querySelector('#timeline').timeline.view, {plot} = app.geometry;
        const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        pen.drawImage(app.parts.base, 2, plot.top + plot.height - 3, 1, 1, 0, 0, 1, 1);
        const pixel = pen.getImageData(0, 0, 1, 1).data;
        return '#' + [...pixel].slice(0, 3).map((part) => part.toString(16).padStart(2, '0')).join('');
    }"""
    with site.visit(decode_path, "timeline") as visit:
        timeline = Timeline(visit)
        assert visit.page.evaluate(ground) == theme("light").paper
        visit.page.emulate_media(color_scheme="dark")
        timeline.settle()
        assert visit.page.evaluate(ground) == theme("dark").paper
        for width in (400, 900):
            visit.page.set_viewport_size({"width": width, "height": 900})
            timeline.settle()
            assert timeline.app("geometry.plot.width") > width * 0.6
            assert visit.page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
        assert visit.page.evaluate("() => document.querySelectorAll('*').length") <= 3_000
