"""From the overview to an example of a cause and its what-if, as a user goes, in headless Chromium."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from site_visits import Site, Visit

from musetrace import analysis
from musetrace.store import Run, open_run

pytestmark = list(NEEDS_CHROMIUM)


def query_of(visit: Visit) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(visit.page.url).query))


def click(visit: Visit, selector: str, name: str | re.Pattern[str], path: str) -> None:
    """Follow a link to a view."""
    visit.page.locator(selector).get_by_role("link", name=name).first.click()
    arrive(visit, path)


def arrive(visit: Visit, path: str) -> None:
    visit.page.wait_for_function("(path) => location.pathname === path", arg=path)
    visit.settle()


def test_four_clicks_lead_to_the_largest_cause_an_example_its_producer_and_its_what_if(
    site: Site, decode_path: Path, decode: Run
) -> None:
    causes = [row for row in analysis.findings(decode).to_pylist() if row["finding"] == "idle_cause"]
    with site.visit(decode_path, "overview") as visit:
        visit.page.locator(".findings .finding-title").nth(4).wait_for()
        click(visit, ".findings", "examples", "/idle")
        cause, kind = query_of(visit)["cause"], query_of(visit)["kind"]
        assert cause == causes[0]["wait"]
        (first, *_) = analysis.idle_examples(decode, cause, layer_kind=kind).to_pylist()
        visit.page.locator("#idle-examples tbody tr").nth(9).wait_for()
        shown = visit.page.locator("#idle-examples tbody tr").first.inner_text()
        assert f"{first['length_ns']:,}" in shown
        assert f"rank {first['producer_rank']}, block {first['producer_block']}" in shown
        click(visit, "#idle-examples tbody", re.compile("^rank .* launch"), "/timeline")
        assert query_of(visit)["span"] == f"{first['rank']}.{first['step']}.{first['span']}"
        visit.page.go_back()
        arrive(visit, "/idle")
        click(visit, "#idle-examples .links", "if this wait were gone", "/path")
        assert query_of(visit)["what"] == f"{cause}=gone"


def test_a_click_on_a_cause_shows_its_examples_and_a_link_restores_them(
    site: Site, decode_path: Path
) -> None:
    with site.visit(decode_path, "idle?rank=1") as visit:
        assert "cause" not in query_of(visit)
        visit.page.locator("#idle-causes .ag-row").get_by_text("stop5_wait_ranks", exact=True).click()
        visit.page.wait_for_function("() => location.search.includes('cause=stop5_wait_ranks')")
        visit.settle()
        assert "stop5 waits for unpooler_send" in visit.page.locator("#idle-examples").inner_text()
        told = visit.page.locator("#idle-examples").inner_text()
        where = visit.page.url.partition("/idle")[2]
    with site.visit(decode_path, "idle" + where) as visit:
        assert visit.page.locator("#idle-examples").inner_text() == told
        assert visit.picked("rank") == "rank 1"
        chosen = visit.page.locator("#idle-causes .ag-row-selected").first.inner_text()
        assert "stop5_wait_ranks" in chosen
        visit.choose("kind", "entry")
        assert "no block was idle for it" in visit.page.locator("#idle-examples").inner_text()


def test_a_cell_of_the_blocks_chooses_its_cause(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "idle") as visit:
        names = visit.ticks("idle-heat")
        at = names.index("gemm2_wait_input")
        said = visit.click("idle-heat", 2, at, lambda: query_of(visit).get("cause") == "gemm2_wait_input")
        assert "rank 0, block 2" in said
        assert "gemm2 waits for" in visit.page.locator("#idle-examples").inner_text()
        assert "gemm2_wait_input" in visit.page.locator("#idle-causes .ag-row-selected").first.inner_text()


def test_a_cell_of_the_strip_is_a_way_to_the_timeline_and_back(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "overview") as visit:
        assert "global" in visit.click("overview-strip", 3, 0, lambda: visit.path == "/timeline")
        assert {"ranks", "from", "to"} <= set(query_of(visit))
        visit.page.go_back()
        arrive(visit, "/overview")
        visit.page.locator(".findings li").nth(4).wait_for()


@pytest.mark.parametrize("view", ["overview", "idle?kind=all"])
def test_hostile_names_are_text(site: Site, hostile_path: Path, view: str) -> None:
    with site.visit(hostile_path, view) as visit:
        words = visit.page.locator("#view").inner_text()
        # Two of the names of waits that this run has idle time for.
        waits = {row["wait"] for row in analysis.idle(open_run(hostile_path)).to_pylist() if row["wait"]}
        printable = [name for name in waits if name.isprintable() and len(name) < 60]
        assert sum(name in words for name in printable) >= 2
        assert visit.page.locator("#view img, #view script, #view svg[onload]").count() == 0
        if view.startswith("idle"):
            visit.page.locator("#idle-causes .ag-row").nth(1).click()
            visit.settle()
            assert visit.page.locator("#idle-examples tbody tr").count() > 0


@pytest.mark.parametrize("view", ["overview", "idle"])
def test_an_empty_run_and_one_of_three_spans_are_shown(
    site: Site, empty_path: Path, tiny_path: Path, view: str
) -> None:
    with site.visit(empty_path, view) as visit:
        assert "Nothing was stamped" in visit.page.locator("#view").text_content()  # type: ignore[operator]
    with site.visit(tiny_path, view) as visit:
        assert "stop1" in visit.page.locator("#view").inner_text()
