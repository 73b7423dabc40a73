"""The block view's pure functions, evaluated in a page without a server."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("playwright")

from chromium import NEEDS_CHROMIUM
from playwright.sync_api import Page
from script_page import call, script_page

pytestmark = list(NEEDS_CHROMIUM)

LIMITS = {"from": 0, "to": 1_000_000}
VIEW = {"from": 0, "to": 1_000_000, "top": 0, "rowPx": 10}
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def page(repository: Path) -> Iterator[Page]:
    with script_page(repository) as empty:
        yield empty


def test_zooming_keeps_the_time_under_the_pointer_and_stays_within_the_run(page: Page) -> None:
    near = call(page, "transform.zoomed", VIEW, 0.5, 250_000, LIMITS)
    assert (near["from"], near["to"]) == (125_000, 625_000)
    assert call(page, "transform.xOf", near, 800, 250_000) == pytest.approx(200)
    assert call(page, "transform.timeAt", near, 800, 200) == pytest.approx(250_000)
    back = call(page, "transform.zoomed", near, 2, 250_000, LIMITS)
    assert (back["from"], back["to"]) == (0, 1_000_000)
    far = call(page, "transform.zoomed", near, 100, 250_000, LIMITS)
    assert (far["from"], far["to"]) == (0, 1_000_000)
    tight = call(page, "transform.zoomed", near, 1e-9, 250_000, LIMITS)
    assert tight["to"] - tight["from"] == 20
    assert call(page, "transform.xOf", tight, 100, 250_000) == pytest.approx(25)


def test_panning_stops_at_the_ends_of_the_run(page: Page) -> None:
    near = {**VIEW, "from": 100_000, "to": 300_000}
    moved = call(page, "transform.panned", near, 50_000, LIMITS)
    assert (moved["from"], moved["to"]) == (150_000, 350_000)
    ends = [call(page, "transform.panned", near, by, LIMITS) for by in (-5e6, 5e6)]
    assert [(end["from"], end["to"]) for end in ends] == [(0, 200_000), (800_000, 1_000_000)]


def test_labels_of_rows_do_not_reach_into_the_next_rank(page: Page) -> None:
    rows = [{"rank": index // 33, "groupStart": index // 33 * 33} for index in range(99)]
    labelled = [row for row in range(99) if call(page, "drawFrame.isLabelled", rows, row, 2.3)]
    assert labelled == [0, 10, 20, 33, 43, 53, 66, 76, 86, 96]
    assert all(later - before >= 13 / 2.3 for before, later in pairwise(labelled))
    assert [row for row in range(99) if call(page, "drawFrame.isLabelled", rows, row, 13)] == [*range(99)]


def test_rows_never_leave_empty_space_that_they_could_fill(page: Page) -> None:
    low = call(page, "transform.rowsLimited", {**VIEW, "rowPx": 2, "top": 7}, 100, 400)
    assert (low["top"], low["rowPx"]) == (0, 4)
    end = call(page, "transform.rowsLimited", {**VIEW, "rowPx": 10, "top": 99}, 100, 400)
    assert (end["top"], end["rowPx"]) == (60, 10)
    higher = call(page, "transform.rowsZoomed", {**VIEW, "top": 20}, 2, 100, 100, 400)
    assert (higher["rowPx"], higher["top"]) == (20, 25)  # row 30 stays at 100 px
    assert call(page, "transform.rowShown", {**VIEW, "top": 20}, 90, 100, 400)["top"] == 60


@pytest.mark.parametrize(
    ("window", "width", "unit", "labels"),
    [
        ((0, 100_000), 1_000, "us", ["0", "10", "20", "30", "40", "50", "60", "70", "80", "90", "100"]),
        (
            (4_999_100, 5_000_100),
            500,
            "ns",
            ["4,999,200", "4,999,400", "4,999,600", "4,999,800", "5,000,000"],
        ),
        ((-2_000, 2_500), 450, "us", [f"{MINUS}2", f"{MINUS}1", "0", "1", "2"]),
        ((1_200, 3_500), 460, "us", ["1.5", "2.0", "2.5", "3.0", "3.5"]),
        ((0, 3_000_000_000), 300, "s", ["0", "1", "2", "3"]),
    ],
)
def test_ticks_are_round_numbers_in_one_unit(
    page: Page, window: tuple[int, int], width: int, unit: str, labels: list[str]
) -> None:
    found = call(page, "axis.ticks", *window, width, 0, 84)
    assert (found["unit"], [tick["label"] for tick in found["ticks"]]) == (unit, labels)
    shifted = call(page, "axis.ticks", window[0] + 777, window[1] + 777, width, 777, 84)
    assert [tick["label"] for tick in shifted["ticks"]] == labels
    assert [tick["time"] - 777 for tick in shifted["ticks"]] == [tick["time"] for tick in found["ticks"]]


def test_numbers_are_exact_and_short_ones_readable(page: Page) -> None:
    numbers = [0, 999, 1_000, 1_234_567, -1_234, 9_007_199_254_740_991]
    exact = ["0", "999", "1,000", "1,234,567", f"{MINUS}1,234", "9,007,199,254,740,991"]
    assert [call(page, "axis.exact", number) for number in numbers] == exact
    assert [call(page, "axis.readable", ns) for ns in (32, 1_234, 45_600, 789_000, 2e6, 3.5e9)] == [
        "32 ns", "1.23 us", "45.6 us", "789 us", "2.00 ms", "3.50 s",
    ]  # fmt: skip


def test_the_axis_counts_from_the_launch_or_step_in_which_the_window_lies(page: Page) -> None:
    run = {"from": 0, "steps": [{"step": 4, "from": 1_000, "to": 9_000}], "hasLayers": True}
    launches = [{"step": 4, "launch": 8, "layer": 7, "kind": "sliding", "from": 2_000, "to": 3_000}]

    def zero(window: tuple[int, int], wanted: str) -> tuple[int, str]:
        found = call(page, "axis.zeroOf", {"from": window[0], "to": window[1]}, run, wanted, launches)
        return found["time"], found["words"]

    assert zero((2_100, 2_200), "auto") == (2_000, "layer 7 of step 4")
    assert zero((1_000, 8_000), "auto") == (1_000, "step 4")
    assert zero((0, 900_000), "auto") == (0, "the run")
    assert zero((2_100, 2_200), "run") == (0, "the run")
    assert zero((2_100, 2_200), "step") == (1_000, "step 4")
    assert zero((0, 5_000), "launch") == (2_000, "layer 7 of step 4")
    run["hasLayers"] = False
    assert zero((2_100, 2_200), "auto") == (2_000, "launch 8 (sliding) of step 4")


def answer_bytes(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    """An answer of the window route, written as its description says."""
    described = [
        {"name": name, "dtype": str(array.dtype), "length": len(array)} for name, array in arrays.items()
    ]
    text = json.dumps({**header, "arrays": described}).encode()
    text += b" " * (-(4 + len(text)) % 8)
    parts = [array.tobytes() for array in arrays.values()]
    return struct.pack("<I", len(text)) + text + b"".join(part + bytes(-len(part) % 8) for part in parts)


def with_answer(page: Page, data: bytes, body: str) -> Any:
    """Evaluate ``body`` with ``answer``, an indexed answer, and ``t``, the scripts."""
    script = f"""(text) => {{
        const t = musetrace.timeline;
        const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
        const answer = t.answer.decode(bytes.buffer);
        if (answer.mode === 'spans') t.answer.indexSpans(answer);
        return {body};
    }}"""
    return page.evaluate(script, base64.b64encode(data).decode())


SPANS = answer_bytes(
    {"seq": 3, "mode": "spans", "from": 0, "to": 1_000, "rows": [5, 8], "strips": 4},
    {
        "row": np.array([7, 5, 5, 5], dtype="uint32"),
        "begin": np.array([10, 500, 100, 120], dtype="float64"),
        "dur": np.array([5, 100, 300, 40], dtype="float64"),
        "job": np.array([1, 2, 3, 4], dtype="uint16"),
    },
)


def test_an_answer_is_decoded_and_a_place_finds_its_span(page: Page) -> None:
    assert with_answer(page, SPANS, "[answer.seq, [...answer.data.begin], [...answer.data.job]]") == [
        3, [10, 500, 100, 120], [1, 2, 3, 4],
    ]  # fmt: skip
    asked = "[5, 6, 7, 8, 4].map((row) => [...t.answer.spansOfRow(answer, row)])"
    assert with_answer(page, SPANS, asked) == [[2, 3, 1], [], [0], [], []]
    at = "(row, time, slack, ok) => t.answer.spanAt(answer, row, time, slack, ok || (() => true))"
    # Of two that overlap the shorter; none beside; the nearest within the slack; not those of other strips.
    asked = "[at(5, 130, 0), at(5, 200, 0), at(5, 450, 0), at(5, 460, 60), at(5, 130, 0, (i) => i !== 3)]"
    assert with_answer(page, SPANS, f"((at) => {asked})({at})") == [3, 2, -1, 1, 2]


def test_spans_that_overlap_have_lanes_of_their_own_where_these_can_be_seen(page: Page) -> None:
    dealt = "t.lanes.deal(answer, (job) => job === 2 ? 0 : 1)"
    bands = "[1, 2, 3].map((span) => t.lanes.bandOf(answer, span, span === 1 ? 0 : 1, {px}))"
    found = with_answer(page, SPANS, f"({dealt}, [[...answer.lane], [...answer.laneCount].slice(0, 4)])")
    assert found == [[0, 0, 0, 1], [1, 2, 0, 0]]
    # 102 px are 100 within the padding: 24 for loads, 38 for work.
    high = with_answer(page, SPANS, f"({dealt}, {bands.format(px=102)})")
    assert high == [pytest.approx(band) for band in ([1, 24], [25, 19], [44, 19])]
    low = with_answer(page, SPANS, f"({dealt}, {bands.format(px=16)})")
    assert low[1] == low[2] == pytest.approx([1 + 14 * 0.24, 14 * 0.38])


def test_measuring_snaps_to_the_nearest_edge_within_reach(page: Page) -> None:
    places = "[[5, 390], [5, 450], [5, 125], [7, 14], [6, 14]]"
    found = with_answer(page, SPANS, f"{places}.map((place) => t.answer.edgeAt(answer, ...place, 20))")
    assert [edge and (edge["time"], edge["isBegin"]) for edge in found] == [
        (400, False), None, (120, True), (15, False), None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "apart_ns", "left_open"),
    [
        ((0, 0), None, " \N{PLUS-MINUS SIGN} 32 ns"),
        ((0, 1), 0, " \N{PLUS-MINUS SIGN} 32 ns"),
        ((0, 1), 100, " \N{PLUS-MINUS SIGN} 132 ns"),
        ((0, 1), None, " (of ranks that are not aligned)"),
        ((0, None), 0, ""),
    ],
)
def test_a_distance_says_what_the_clocks_leave_open(
    page: Page, ranks: tuple[int | None, int | None], apart_ns: int | None, left_open: str
) -> None:
    edges = [
        {"time": time, "words": words, "rank": rank}
        for time, words, rank in zip((100, 2_600), ("end of a", ""), ranks, strict=True)
    ]
    run = {"tick_ns": 32, "uncertainty_ns": apart_ns}
    told = call(page, "measure.words", {"run": run, "measure": {"edges": edges}})
    assert told == f"2,500 ns{left_open} from end of a to a time between edges"


def test_a_place_in_a_raster_is_its_cell(page: Page) -> None:
    op = np.full(2 * 4 * 10, 255, dtype="uint8")
    op[(1 * 4 + 3) * 10 + 9] = 6
    share = np.where(op == 6, 51, 0).astype("uint8")
    data = answer_bytes(
        {"seq": 1, "mode": "raster", "from": 100, "to": 200, "rows": [0, 8], "strips": 4, "bins": [2, 10]},
        {"op": op, "share": share},
    )
    places = "[[7.9, 199, 3], [3.9, 199, 3], [7.9, 199, 2], [8, 199, 3], [4, 200, 3]]"
    found = with_answer(page, data, f"{places}.map((place) => t.answer.cellAt(answer, ...place))")
    assert found == [{"op": 6, "share": 0.2, "strip": 3}, None, None, None, None]


def painted(page: Page, data: bytes, width: int, rows: int) -> list[list[str]]:
    """The pixels of an answer drawn over rows 0 to ``rows``, 1 ns and one row a px, on white.

    Jobs 0 to 3 are a load, work, a send and a wait, each of an op of its own.
    """
    ops = [{"name": str(i), "light": colour, "dark": "#000000"} for i, colour in enumerate(OPS)]
    script = f"""((ops) => {{
        const palette = t.palette.read({{ops}}), canvas = document.createElement('canvas');
        [canvas.width, canvas.height] = [{width}, {rows}];
        const pen = canvas.getContext('2d', {{willReadFrequently: true}});
        pen.fillStyle = '#ffffff';
        pen.fillRect(0, 0, {width}, {rows});
        const surface = new t.surface.CanvasSurface(pen, palette);
        const view = {{from: 0, to: {width}, top: 0, rowPx: 1}};
        const plot = {{left: 0, top: 0, width: {width}, height: {rows}}};
        const kinds = [0, 1, 2, 3].map((strip) => [strip, {{strip, op_index: strip, shown: ''}}]);
        if (answer.mode === 'spans') {{
            t.lanes.deal(answer, (job) => job);
            t.drawData.drawSpans(surface, answer, view, plot, {{jobById: new Map(kinds)}}, palette);
        }} else t.drawData.drawRaster(surface, answer, view, plot, palette);
        const {{data}} = pen.getImageData(0, 0, {width}, {rows});
        const hex = (at) => [0, 1, 2].map((i) => data[at + i].toString(16).padStart(2, '0')).join('');
        return [...Array({rows}).keys()].map((y) =>
            [...Array({width}).keys()].map((x) => '#' + hex(4 * (y * {width} + x))));
    }})({json.dumps(ops)})"""
    pixels: list[list[str]] = with_answer(page, data, script)
    return pixels


OPS = ("#aa5566", "#667733", "#551188", "#004433")
GROUND = "#ffffff"


def faded(colour: str, share: float) -> npt.NDArray[np.float64]:
    """A colour over white."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return parts * share + 255 * (1 - share)


def test_spans_are_painted_from_their_begin_to_their_end_work_over_loads_over_waits(page: Page) -> None:
    spans = [  # row, begin, dur, job
        (0, 2, 3, 1),
        (1, 0, 12, 3), (1, 3, 6, 0), (1, 5, 2, 1),
        (2, 6, 0, 2),
    ]  # fmt: skip
    types = {"row": "uint32", "begin": "float64", "dur": "float64", "job": "uint16"}
    columns = zip(types.items(), zip(*spans, strict=True), strict=True)
    data = answer_bytes(
        {"seq": 1, "mode": "spans", "from": 0, "to": 12, "rows": [0, 3], "strips": 1},
        {name: np.array(values, dtype=dtype) for (name, dtype), values in columns},
    )
    first, second, third = painted(page, data, 12, 3)
    assert first == [GROUND] * 2 + [OPS[1]] * 3 + [GROUND] * 7
    assert second[5:7] == [OPS[1]] * 2
    wait, load = second[0], second[3]
    # A span of 4 px and more ends a px early, so that two of an op do not become one.
    assert second == [wait] * 3 + [load] * 2 + [OPS[1]] * 2 + [load] + [wait] * 3 + [GROUND]
    assert len({wait, load, OPS[1], GROUND}) == 4
    assert third == [GROUND] * 6 + [OPS[2]] + [GROUND] * 5


def test_a_raster_has_each_cells_colour_by_its_share_and_strip(page: Page) -> None:
    cells = {"op": [1, 1, 255, 3, 0], "share": [255, 102, 0, 255, 1], "strip": [1, 1, 255, 3, 0]}
    data = answer_bytes(
        {"seq": 1, "mode": "raster", "from": 0, "to": 5, "rows": [0, 1], "strips": 1, "bins": [1, 5]},
        {name: np.array(values, dtype="uint8") for name, values in cells.items()},
    )
    (pixels,) = painted(page, data, 5, 1)
    # All of a pixel's time; two fifths of it; none; a wait, painted with 0.26; hardly any, but seen.
    expected = [
        faded(OPS[1], 1),
        faded(OPS[1], 0.4),
        faded(GROUND, 1),
        faded(OPS[3], 0.26),
        faded(OPS[0], 0.16),
    ]
    for pixel, colour in zip(pixels, expected, strict=True):
        assert faded(pixel, 1) == pytest.approx(colour, abs=2)


def test_the_state_reads_what_it_has_written_and_nothing_else(page: Page) -> None:
    written = page.evaluate(
        """() => musetrace.timeline.state.write({
            view: {from: 10.75, to: 99, top: 3.25, rowPx: 20}, run: {opening: {from: 0, to: 1000}},
            choice: {rows: 'warps', block: 'r1b2', ranks: '0,3'}, zeroWanted: 'step',
            geometry: {plot: {height: 400}}, rowsFit: () => false,
            details: {span: {rank: 0, step: 2, id: 77}}, area: {from: 1, to: 2, rowFrom: 3, rowTo: 4},
            measure: {edges: [{time: 5}, {time: -6}]}, found: {op: 'a&b', leastNs: '10', mostNs: ''},
        })"""
    )
    assert written == {
        "rows": "warps", "block": "r1b2", "ranks": "0,3", "from": "10.75", "to": "99", "row_from": "3.25",
        "row_to": "23.25", "zero": "step", "span": "0.2.77", "area": "1_2_3_4", "measure": "5_-6",
        "find": "a&b", "least_ns": "10",
    }  # fmt: skip
    assert call(page, "state.read", written) == written
    odd = {"rows": "all", "block": "r1", "ranks": "0,", "from": "1e9", "to": "<b>", "span": "1.2", "x": "1"}
    assert call(page, "state.read", {**odd, "row_from": "-1", "area": "1_2", "find": "a" * 201}) == {}


def test_the_minimaps_brush_can_always_be_seen_and_taken(page: Page) -> None:
    run = {"from": 0, "to": 1_000_000}
    assert call(page, "minimap.brushOf", {"from": 250_000, "to": 750_000}, run, 1_000) == [250, 750]
    left, right = call(page, "minimap.brushOf", {"from": 500_000, "to": 500_001}, run, 1_000)
    assert right - left == pytest.approx(5)
    grips = [call(page, "minimap.gripOf", [250, 750], x) for x in (252, 747, 500, 100, 900)]
    assert grips == ["from", "to", "window", "new", "new"]


def test_a_stop_is_where_the_last_row_came_out_of_it(page: Page) -> None:
    asked = """() => {
        const run = {jobById: new Map([[1, {stop: 3}], [2, {stop: null}]])};
        const answer = {data: {begin: [10, 12, 15, 110], dur: [5, 9, 50, 4], job: [1, 1, 2, 1]}};
        return musetrace.timeline.stops.passed(answer, run, [{from: 0}, {from: 100}]);
    }"""
    assert page.evaluate(asked) == [{"number": 3, "time": 21}, {"number": 3, "time": 114}]


def test_text_that_cannot_be_seen_or_turns_around_is_marked(page: Page) -> None:
    shown = [call(page, "fittingText.shown", text) for text in ("gemm<128,64>", "a\x00b", "x\u202ey")]
    assert shown == ["gemm<128,64>", "a\ufffdb", "x\ufffdy"]
    cut = call(page, "fittingText.fitted", "stop4_wait_ranks", 60, "11px sans-serif")
    assert cut.endswith("\N{HORIZONTAL ELLIPSIS}")
    assert "stop4_wait_ranks".startswith(cut[:-1])


def test_a_histogram_places_its_marks_within_their_bins(page: Page) -> None:
    edges = [0, 10, 20, 40]
    places = [call(page, "histogram.placeOf", edges, value, 0, 3) for value in (0, 5, 10, 30, 40)]
    assert places == pytest.approx([0, 1 / 6, 1 / 3, 5 / 6, 1])
