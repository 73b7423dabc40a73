"""What if and two runs, in headless Chromium: levers change length and address, names are text."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hostile import HOSTILE

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from playwright.sync_api import Locator, Page
from site_visits import Site, Visit

from musetrace import analysis
from musetrace.dashboard.what_list import read_changes
from musetrace.store import Run

pytestmark = list(NEEDS_CHROMIUM)


def what(page: Page) -> list[str]:
    """The changes that the address bar holds."""
    return read_changes(parse_qs(urlsplit(page.url).query).get("what", [""])[0])


def lever(page: Page, op: str) -> Locator:
    return page.locator("label.lever", has=page.locator(f".lever-name[title={op!r}]"))


def then_us(page: Page) -> str:
    """What is said of the launch's length."""
    return page.locator(".what-line b").inner_text()


def expected(decode: Run, *changes: str) -> str:
    (row,) = analysis.what_if(decode, changes, together=True, layer_kind="sliding").to_pylist()
    old, new = (f"{row[name] / 1000:,.2f}" for name in ("length_mean_ns", "new_mean_ns"))
    if not changes:
        return f"{old} \N{MICRO SIGN}s"
    return f"{old} \N{RIGHTWARDS ARROW} {new} \N{MICRO SIGN}s"


def wait_for_address(visit: Visit, *changes: str) -> None:
    """Until the levers rest and the address says so."""
    for _ in range(100):
        if what(visit.page) == list(changes):
            visit.settle()
            return
        visit.page.wait_for_timeout(50)
    raise AssertionError(f"the address holds {what(visit.page)}, not {changes}")


def test_levers_change_the_length_and_the_address_and_a_link_restores_them(
    site: Site, decode_path: Path, decode: Run
) -> None:
    with site.visit(decode_path, "path") as visit:
        page = visit.page
        assert then_us(page) == expected(decode)
        before = page.evaluate("history.length")
        lever(page, "gemm1").locator("input").focus()
        for _ in range(10):
            page.keyboard.press("ArrowLeft")
        wait_for_address(visit, "gemm1=-10%")
        assert page.evaluate("history.length") == before + 1, "one entry for the whole drag"
        assert lever(page, "gemm1").locator("output").inner_text() == "90 %"
        assert then_us(page) == expected(decode, "gemm1=-10%") != expected(decode)
        page.get_by_label("stop3", exact=True).check()
        wait_for_address(visit, "gemm1=-10%", "stop3=gone")
        assert then_us(page) == expected(decode, "gemm1=-10%", "stop3=gone")
        link = page.url
        page.go_back()
        page.wait_for_function("() => !location.search.includes('stop3')")
        visit.settle()
        assert then_us(page) == expected(decode, "gemm1=-10%")
        assert not page.get_by_label("stop3", exact=True).is_checked()
    with site.visit(decode_path, link.split("/", 3)[3]) as visit:
        page = visit.page
        assert then_us(page) == expected(decode, "gemm1=-10%", "stop3=gone")
        assert lever(page, "gemm1").locator("input").input_value() == "90"
        assert page.get_by_label("stop3", exact=True).is_checked()
        assert page.url == link, "nothing is written into an address that says it all"
        page.locator("#what-reset").click()
        wait_for_address(visit)
        assert then_us(page) == expected(decode)
        # The first row of what brings most, each alone, sets its lever.
        (best, *_) = analysis.what_ifs(decode, layer_kind="sliding").to_pylist()
        page.locator("#what-ranked .ag-row[row-index='0']").click()
        wait_for_address(visit, best["change"])
        assert then_us(page) == expected(decode, best["change"])


def test_a_click_on_the_strip_reads_the_stretch_and_leads_to_its_span(
    site: Site, decode_path: Path, decode: Run
) -> None:
    rows = analysis.critical_spans(decode, step=1, launch=2).to_pylist()
    longest = max((row for row in rows if row["how"] == "own"), key=lambda row: row["dur_ns"])
    with site.visit(decode_path, "path") as visit:
        page = visit.page
        readout = page.locator("#path-stretch")
        at_us = (longest["begin_ns"] + longest["dur_ns"] / 3) / 1000
        visit.click("path-strip", at_us, 0.3, lambda: longest["job"] in readout.inner_text())
        exact = [int(value.get_attribute("value") or "") for value in readout.locator("data").all()]
        assert exact == [longest["begin_ns"], longest["dur_ns"]]
        href = readout.get_by_text("its span in the timeline").get_attribute("href") or ""
        assert href == f"/timeline?span={longest['rank']}.1.{longest['span']}"


def test_two_runs_are_compared_whatever_their_names_are(
    site: Site, hostile_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    again = tmp_path_factory.mktemp("again") / HOSTILE[0]
    again.symlink_to(hostile_path, target_is_directory=True)
    with site.visit(hostile_path, "compare?numbers=ops", again) as visit:
        page = visit.page
        assert HOSTILE[0] in page.locator("#view").inner_text(), "a run's name is text"
        names = page.locator("#compare-op-grid .ag-cell[col-id='op']").all_inner_texts()
        assert {HOSTILE[0], HOSTILE[1]} & set(names)
        assert any("<" in tick for tick in visit.ticks("compare-ops"))
        assert page.locator("#view img, #view b a, #view svg a").count() == 0
        for graph in ("compare-times", "compare-ops", "compare-idle", "compare-lines"):
            drawn = page.locator(f"#{graph} .js-plotly-plot").evaluate("(plot) => plot.clientHeight")
            assert drawn > 70, f"{graph} has its height"
        page.locator("text=swap A and B").click()
        page.wait_for_function("() => location.search.includes('a=1')")
        visit.settle()
        assert visit.picked("a") == HOSTILE[0]
        page.set_viewport_size({"width": 400, "height": 900})
        page.reload()
        visit.settle()
        assert page.evaluate("document.documentElement.scrollWidth") == 400, "nothing is wider"
    with site.visit(hostile_path, "compare") as visit:
        assert "start musetrace view A B" in visit.page.locator("#view").inner_text()


def test_hostile_names_are_levers_whose_link_works(site: Site, hostile_path: Path) -> None:
    with site.visit(hostile_path, "path") as visit:
        page = visit.page
        titles = [one.get_attribute("title") for one in page.locator(".lever-name").all()]
        at = titles.index(HOSTILE[2])
        page.locator(".lever input").nth(at).focus()
        page.keyboard.press("Home")
        wait_for_address(visit, f"{HOSTILE[2]}=0")
        link, length = page.url, then_us(page)
    with site.visit(hostile_path, link.split("/", 3)[3]) as visit:
        assert visit.page.locator(".lever input").nth(at).input_value() == "0"
        assert then_us(visit.page) == length
