"""The block view in headless Chromium: exact spans by keys, links, back, areas, search, measuring."""

from __future__ import annotations

import csv
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("playwright")

import decode_run
from builders import build_run_from_text
from chromium import NEEDS_CHROMIUM
from decode_run import build_decode_run
from site_visits import Site
from timeline_visits import VIEW, Span, Timeline, every_span, values

from musetrace.store import Run, open_run

pytestmark = list(NEEDS_CHROMIUM)

LONG_AND_SHORT = """
r0 s0 l0 layer=0 sliding b0 w0 attention_load_k  1000000000 5000000000
r0 s0 l0 layer=0 sliding b0 w4 attention_compute 3000000007 3000000039
"""


@pytest.fixture(scope="module")
def spans(decode: Run) -> list[Span]:
    return every_span(decode)


def one_of(spans: list[Span], name: str, **wanted: int) -> Span:
    """The first span of a job at a place."""
    chosen = {"rank": 0, "step": 1, "launch": 2, "block": 3, **wanted}
    return next(
        span for span in spans if span["name"] == name and all(span[key] == chosen[key] for key in chosen)
    )


def launch_begin(decode: Run, step: int, launch: int) -> int:
    """The begin of a launch of rank 0 in ns from the run's origin."""
    origin = min(base for rank in decode.ranks for base in decode.steps(rank)["base_ns"].to_pylist())
    rows = decode.launches(0).to_pylist()
    return next(row["begin_ns"] - origin for row in rows if (row["step"], row["launch"]) == (step, launch))


def middle(span: Span) -> float:
    return float(span["begin"] + span["dur"] / 2)


def test_keys_zoom_to_one_span_and_its_link_shows_the_same_elsewhere(
    site: Site, decode_path: Path, decode: Run, spans: list[Span]
) -> None:
    span = one_of(spans, "gemm1_load")
    zero = launch_begin(decode, 1, 2)
    with site.visit(decode_path, "timeline") as visit:
        timeline = Timeline(visit)
        whole = timeline.window
        timeline.point(span["row"], middle(span), span["strip"])
        for _ in range(40):
            if timeline.window[1] - timeline.window[0] < 2 * span["dur"]:
                break
            timeline.press("w")
        timeline.point(span["row"], middle(span), span["strip"])
        assert timeline.read() == [span["begin"] - zero, span["end"] - zero, span["dur"]]
        assert "gemm1_load" in visit.page.locator(".tl-readout").inner_text()
        timeline.click(span["row"], middle(span), span["strip"])
        assert "gemm1_load" in visit.page.locator(".tl-details").inner_text()
        address, window, picture = timeline.told(), timeline.window, timeline.picture()
        assert parse_qs(urlsplit(address).query)["span"] == [f"0.1.{span['id']}"]
        timeline.press("0")
        assert timeline.window == whole
        assert "from=" not in timeline.told()
        visit.page.go_back()
        visit.page.wait_for_function("() => location.search.includes('from=')")
        visit.settle()
        timeline.settle()
        assert timeline.window == pytest.approx(window, abs=1)
    with site.visit(decode_path, "timeline?" + urlsplit(address).query) as visit:
        timeline = Timeline(visit)
        assert timeline.window == pytest.approx(window, abs=1)
        assert timeline.picture() == picture
        assert "gemm1_load" in visit.page.locator(".tl-details").inner_text()


def test_where_most_of_a_run_is_blank_it_opens_on_its_first_whole_step_and_fit_shows_all(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_run, "STEP_NS", 20 * decode_run.STEP_NS)
    path = build_decode_run(tmp_path / "run", ranks=1)
    first, *_, last = open_run(path).steps(0).to_pylist()
    whole = (0, last["end_ns"] - first["base_ns"])
    with site.visit(path, "timeline") as visit:
        timeline = Timeline(visit)
        assert timeline.window == (0, first["end_ns"] - first["base_ns"])
        assert "from=" not in timeline.told()
        timeline.press("0")
        assert timeline.window == whole
        asked = parse_qs(urlsplit(timeline.told()).query)
        assert [asked["from"], asked["to"]] == [[str(whole[0])], [str(whole[1])]]
        visit.page.go_back()
        visit.page.wait_for_function("() => !location.search.includes('from=')")
        visit.settle()
        timeline.settle()
        assert timeline.window == (0, first["end_ns"] - first["base_ns"])


def test_a_wait_leads_to_what_it_waited_for_and_back(
    site: Site, decode_path: Path, spans: list[Span]
) -> None:
    wait = one_of(spans, "stop3_wait_ranks", block=1)
    with site.visit(decode_path, f"timeline?span=0.1.{wait['id']}") as visit:
        timeline = Timeline(visit)
        begin, end = timeline.window
        assert begin < wait["begin"] < wait["end"] < end
        details = visit.page.locator(".tl-details")
        assert "stop3_wait_ranks" in details.inner_text()
        details.locator(".tl-link").first.click()
        timeline.settle()
        producer = timeline.app("details.span")
        found = next(
            span for span in spans if [span[key] for key in ("rank", "step", "id")] ==
            [producer[key] for key in ("rank", "step", "id")]
        )  # fmt: skip
        assert found["name"] == "gemm1_send"
        assert (producer["begin"], producer["end"]) == (found["begin"], found["end"])
        assert "waited for by" in details.inner_text()
        row = sorted(
            (span for span in spans if span["row"] == found["row"]),
            key=lambda span: (span["begin"], span["end"], span["rank"], span["step"], span["id"]),
        )
        place = row.index(found)
        timeline.press(".")
        assert timeline.app("details.span.id") == row[place + 1]["id"]
        timeline.press(",", ",")
        assert timeline.app("details.span.id") == row[place - 1]["id"]


def test_a_span_of_32_ns_beside_one_of_4_s_is_exact_in_the_second_of_two_runs(
    site: Site, decode_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = build_run_from_text(tmp_path_factory.mktemp("long"), LONG_AND_SHORT, blocks=1)
    with site.visit(decode_path, "timeline?run=1&span=0.0.1", run) as visit:
        timeline = Timeline(visit)
        assert timeline.app("rows.length") == 1
        begin, end = timeline.window
        assert begin <= 2_000_000_007 < 2_000_000_039 <= end
        assert end - begin < 1_000
        timeline.press("f")
        assert timeline.window == (1_999_999_991, 2_000_000_055)
        timeline.point(0, 2_000_000_023)
        assert timeline.read() == [2_000_000_007, 2_000_000_039, 32]
        timeline.press("0")
        timeline.point(0, 2_000_000_023, strip=0)
        assert timeline.read() == [0, 4_000_000_000, 4_000_000_000]


def test_a_chosen_area_has_the_numbers_of_its_spans(site: Site, decode_path: Path, spans: list[Span]) -> None:
    with site.visit(decode_path, "timeline?from=1000000&to=1100000") as visit:
        timeline = Timeline(visit)
        timeline.page.keyboard.down("Shift")
        timeline.point(2, 1_010_000)
        timeline.page.mouse.down()
        timeline.page.mouse.move(*timeline.place(5, 1_060_000), steps=3)
        timeline.page.mouse.up()
        timeline.page.keyboard.up("Shift")
        timeline.settle()
        area = timeline.app("area")
        assert (area["rowFrom"], area["rowTo"]) == (2, 6)
        inside = [
            span for span in spans
            if 2 <= span["row"] < 6 and span["begin"] < area["to"] and span["end"] > area["from"]
        ]  # fmt: skip
        assert visit.page.locator(".tl-area header b").inner_text().startswith(f"{len(inside):,} spans")
        line = visit.page.locator(".tl-area tbody tr", has_text="gemm1 load").first
        line.locator("button").click()
        lengths = sorted(span["dur"] for span in inside if (span["op"], span["kind"]) == ("gemm1", "load"))
        shown = values(visit.page, ".tl-area .tl-numbers data")
        assert (shown[0], shown[1], shown[2], shown[6]) == (
            len(lengths), sum(lengths), lengths[0], lengths[-1],
        )  # fmt: skip
        # A percentile is one of the lengths, or lies between the two about it.
        for share, value in zip((0.1, 0.5, 0.9), shown[3:6], strict=True):
            at = share * (len(lengths) - 1)
            assert lengths[int(at)] <= value <= lengths[min(int(at) + 1, len(lengths) - 1)]
        with visit.page.expect_download() as saved:
            visit.page.locator(".tl-area").get_by_role("button", name="CSV").click()
        with Path(saved.value.path()).open(newline="", encoding="utf-8") as file:
            table = {(row["op"], row["kind"]): row for row in csv.DictReader(file)}
        assert len(table) == len({(span["op"], span["kind"]) for span in inside})
        assert int(table["gemm1", "load"]["total_ns"]) == sum(lengths)
        counts = visit.page.evaluate(f"() => {VIEW}.area.found.rows.map((row) => [row.n, row.counts])")
        assert all(number == sum(bins) for number, bins in counts)


def test_search_finds_every_span_of_an_op_within_a_duration(
    site: Site, decode_path: Path, spans: list[Span]
) -> None:
    least = sorted(span["dur"] for span in spans if span["op"] == "router")[-20]
    hits = sorted(
        (span for span in spans if "router" in (span["op"] + span["name"]) and span["dur"] >= least),
        key=lambda span: (span["begin"], span["rank"], span["step"], span["id"]),
    )
    with site.visit(decode_path, "timeline") as visit:
        timeline = Timeline(visit)
        timeline.page.keyboard.press("/")
        timeline.page.keyboard.type("router")
        timeline.page.locator("[aria-label='min ns']").fill(str(least))
        timeline.page.keyboard.press("Enter")
        timeline.settle()
        count = timeline.page.locator(".tl-count")
        assert count.inner_text() == f"1 of {len(hits)}"
        assert timeline.app("details.span.id") == hits[0]["id"]
        timeline.press("n", "n")
        assert [timeline.app(f"details.span.{key}") for key in ("rank", "step", "id")] == [
            hits[2][key] for key in ("rank", "step", "id")
        ]
        timeline.press("N")
        assert count.inner_text() == f"2 of {len(hits)}"
        begin, end = timeline.window
        assert begin <= hits[1]["begin"] < hits[1]["end"] <= end
        assert "find=router" in timeline.told()
        later = next(place for place, hit in enumerate(hits) if hit["step"] == 2)
    # A search begins where the window does, and can go back from there.
    begin = hits[later]["begin"] - 100
    with site.visit(decode_path, f"timeline?from={begin}&to={begin + 5_000}") as visit:
        timeline = Timeline(visit)
        timeline.page.keyboard.press("/")
        timeline.page.keyboard.type("router")
        timeline.page.locator("[aria-label='min ns']").fill(str(least))
        timeline.page.keyboard.press("Enter")
        timeline.settle()
        count = timeline.page.locator(".tl-count")
        assert count.inner_text() == f"{later + 1} of {len(hits)}"
        timeline.press("N")
        assert count.inner_text() == f"{later} of {len(hits)}"
        assert timeline.app("details.span.id") == hits[later - 1]["id"]


def test_measuring_snaps_to_edges(site: Site, decode_path: Path, spans: list[Span]) -> None:
    one, other = one_of(spans, "gemm1_compute"), one_of(spans, "gemm2_compute")
    window = f"from={one['begin'] - 5_000}&to={other['end'] + 5_000}"
    with site.visit(decode_path, f"timeline?{window}") as visit:
        timeline = Timeline(visit)
        timeline.press("m")
        for span, edge, beside in ((one, "end", 3), (other, "begin", -3)):
            x, y = timeline.place(span["row"], span[edge], span["strip"])
            timeline.page.mouse.click(x + beside, y)
        timeline.settle()
        edges = [edge["time"] for edge in timeline.app("measure.edges")]
        ends = {span[edge] for span in spans if span["row"] == one["row"] for edge in ("begin", "end")}
        assert set(edges) <= ends
        assert f"{edges[1] - edges[0]:,} ns" in timeline.page.locator(".tl-note").inner_text()
        assert f"measure={edges[0]}_{edges[1]}" in timeline.told()
