"""Overlap, stops and launches in headless Chromium: what a user clicks through, and hostile names."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from decode_run import LAYER, build_decode_run
from hostile import HOSTILE

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from site_visits import Site, Visit

from musetrace.analysis.spans.run_axis import origin_ns
from musetrace.job_table import JobTable
from musetrace.store import Run

pytestmark = list(NEEDS_CHROMIUM)
DATA = "(graph) => document.querySelector(`#${graph} .js-plotly-plot`).data"


def fields(visit: Visit) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(visit.page.url).query).items()}


def test_a_click_on_a_launch_shows_its_window_in_the_timeline_and_back_goes_back(
    site: Site, decode_path: Path, decode: Run
) -> None:
    row = next(one for one in decode.launches(0).to_pylist() if (one["step"], one["launch"]) == (1, 3))
    base = next(one["base_ns"] for one in decode.steps(0).to_pylist() if one["step"] == 1)
    middle = ((row["begin_ns"] + row["end_ns"]) / 2 - base) / 1000
    with site.visit(decode_path, "launches?step=1&rank=0") as visit:
        assert "step 1: 6 launches" in visit.page.locator("#strip-note").inner_text()
        visit.click("strip-graph", middle, 0.62, lambda: visit.path == "/timeline")
        told = fields(visit)
        begin, end = (row[name] - origin_ns(decode) for name in ("begin_ns", "end_ns"))
        assert told["ranks"] == "0"
        assert int(told["from"]) < begin < end < int(told["to"])
        visit.page.go_back()
        visit.page.wait_for_function("() => location.pathname === '/launches'")
        visit.settle()
        assert fields(visit) == {"step": "1", "rank": "0"}
        assert "step 1: 6 launches" in visit.page.locator("#strip-note").inner_text()


def test_a_stop_is_picked_in_table_and_picture_and_a_link_restores_it(site: Site, decode_path: Path) -> None:
    with site.visit(decode_path, "stops?kind=global") as visit:
        page = visit.page
        page.locator("#stops-grid .ag-cell", has_text="stop3").first.click()
        visit.settle()
        assert (visit.picked("stop"), fields(visit)["stop"]) == ("stop3", "stop3")
        dots = next(one for one in page.evaluate(DATA, "stop-spreads") if one["name"] == "intervals")
        at = next(i for i, one in enumerate(dots["customdata"]) if one[1] == "stop5")
        visit.click("stop-spreads", dots["x"][at], dots["y"][at], lambda: visit.picked("stop") == "stop5")
        assert (visit.picked("stop"), fields(visit)) == ("stop5", {"kind": "global", "stop": "stop5"})
        what_if = page.locator("#one-stop-note a").get_attribute("href") or ""
        assert what_if == "/path?kind=global&step=all&what=stop5%3Dgone"
        examples = page.locator("#one-stop-examples li").all_text_contents()
        heights = page.evaluate(DATA, "stop-means")[0]["y"]
        address = urlsplit(page.url)
    assert len(examples) == 2
    with site.visit(decode_path, f"{address.path[1:]}?{address.query}") as visit:
        assert visit.picked("stop") == "stop5"
        assert visit.page.locator("#one-stop-examples li").all_text_contents() == examples
        assert visit.page.evaluate(DATA, "stop-means")[0]["y"] == heights


def test_the_scale_is_in_the_address_and_the_axis_follows(site: Site, gpu_slice: Run) -> None:
    axis = "() => document.querySelector('#roof-graph .js-plotly-plot')._fullLayout.xaxis.type"
    with site.visit(gpu_slice.path, "overlap?kind=global") as visit:
        assert visit.page.evaluate(axis) == "linear"
        visit.choose("scale", "logarithmic")
        assert fields(visit) == {"kind": "global", "scale": "log"}
        assert visit.page.evaluate(axis) == "log"
        assert "ceiling 4,590 GB/s" in (visit.page.locator("#roof-graph").text_content() or "")
        assert visit.page.locator("#roof-table .ag-row").count() > 5


@pytest.fixture(scope="module")
def hostile_stop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first stop is called as no stop should be."""
    table = JobTable.built_in()
    name = HOSTILE[0]
    jobs = tuple(
        dataclasses.replace(job, op=name, name=job.name.replace("stop1", name)) if job.op == "stop1" else job
        for job in table.jobs
    )
    renamed = zip(jobs, table.jobs, strict=True)
    schedule = {job.name: LAYER[old.name] for job, old in renamed if old.name in LAYER}
    return build_decode_run(
        tmp_path_factory.mktemp("hostile_stop"), kinds=(HOSTILE[2], HOSTILE[0]), steps=1,
        schedules={HOSTILE[2]: schedule, HOSTILE[0]: schedule}, table=dataclasses.replace(table, jobs=jobs),
    )  # fmt: skip


def test_hostile_names_are_shown_literally_in_all_three(site: Site, hostile_stop: Path) -> None:
    for where, shown_in, name in (
        ("overlap", "#view", HOSTILE[0]),
        ("stops?stop=" + quote(HOSTILE[0]), "#stops-grid", HOSTILE[0]),
        ("launches", "#edges-grid", HOSTILE[0]),
    ):
        with site.visit(hostile_stop, where) as visit:
            page = visit.page
            assert name in page.locator(shown_in).inner_text()
            assert page.locator("#view img, a[href*=evil], svg a, [onerror], [onload]").count() == 0
            if where.startswith("stops"):
                assert HOSTILE[0] in page.locator("#one-stop-note").inner_text()
                assert any(tick.startswith("<img src=x") for tick in visit.ticks("stop-waits"))


def test_the_three_fit_a_phone(site: Site, decode_path: Path) -> None:
    for where in ("overlap", "stops", "launches"):
        with site.visit(decode_path, where) as visit:
            for width in (400, 900):
                visit.page.set_viewport_size({"width": width, "height": 900})
                visit.settle()
                # Plotly follows the window a little later.
                visit.page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
