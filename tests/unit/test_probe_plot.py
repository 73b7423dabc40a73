"""The page of curves: what it shows of samples written here, with titles, units, and all it needs inside."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("plotly")

from musetrace.probe.document import document
from musetrace.probe.facts import Fact, Outcome
from musetrace.probe.plot import FIGURES, require_plotly, write_plot

TRACES = re.compile(
    r"Plotly\.newPlot\(\s*\"[^\"]+\",\s*(\[.*?\]),\s*(\{\"template\".*?\}),\s*\{\"displaylogo\"", re.DOTALL
)


def at(name: str, case: str, x: int, p10: float, median: float, p90: float) -> Fact:
    return Fact(name, "", 7, median, p10, p90, case=case, at=x)


MEASURED = {
    # Out of order: a curve goes from left to right.
    "stream": [at("rate", "", 48, 4.4, 4.5, 4.6), at("rate", "", 16, 2.9, 3.0, 3.1)],
    "hop": [
        at("one_way", "Lamport slot", 0, 281, 289, 383),
        at("one_way", "Lamport slot", 48, 639, 660, 685),
        at("one_way", "release, acquire", 0, 420, 430, 440),
    ],
    "fence": [
        at("cost", "__threadfence, nothing stored", 0, 207, 207, 207),
        at("cost", "__threadfence, nothing stored", 96, 2958, 4119, 4920),
    ],
    "instruction_cache": [
        at("cycles_per_instruction", "alone, 12 warps", 100, 4.0, 4.0, 4.0),
        at("cycles_per_instruction", "stitched, 12 warps", 200, 6.0, 6.1, 6.1),
        at("pass", "100 KiB alone, 12 warps", 100, 12, 12, 12),
    ],
}


def probed(measured: dict[str, list[Fact]], name: str = "NVIDIA H200") -> dict[str, Any]:
    outcomes = [Outcome(experiment, "", "measured", 1.0, facts) for experiment, facts in measured.items()]
    return document({"kind": "cuda", "name": name}, outcomes)


def drawn(page: str) -> dict[str, tuple[list[dict[str, Any]], dict[str, Any]]]:
    """The traces and the layout of each figure, by title."""
    figures = [(json.loads(traces), json.loads(layout)) for traces, layout in TRACES.findall(page)]
    return {layout["title"]["text"]: (traces, layout) for traces, layout in figures}


def test_every_figure_has_its_curves_from_left_to_right() -> None:
    figures = drawn(write_plot(probed(MEASURED)))
    assert list(figures) == [figure.title for figure in FIGURES]
    (stream,) = figures["Stream ceiling"][0]
    assert (stream["x"], stream["y"]) == ([16, 48], [3.0, 4.5])
    assert stream["error_y"]["array"] == pytest.approx([0.1, 0.1])
    lamport, flag = figures["Hop from SM to SM"][0]
    assert lamport["error_y"]["array"] == [94, 25]
    assert lamport["error_y"]["arrayminus"] == [8, 21]
    assert (flag["name"], flag["y"]) == ("release, acquire", [430])
    (fence,) = figures["Fence"][0]
    assert fence["y"] == pytest.approx([0.207, 4.119])
    assert [trace["name"] for trace in figures["Instruction cache"][0]] == [
        "12 warps, one body",
        "12 warps, two bodies stitched",
    ]


def test_every_axis_has_a_title_with_its_unit_and_begins_at_zero() -> None:
    titles = {
        name: (layout["xaxis"]["title"]["text"], layout["yaxis"]["title"]["text"])
        for name, (_, layout) in drawn(write_plot(probed(MEASURED))).items()
    }
    assert titles == {
        "Stream ceiling": ("bytes in flight per SM (KiB)", "all SMs together (TB/s)"),
        "Hop from SM to SM": ("bulk bytes in flight per SM (KiB)", "one way (ns)"),
        "Fence": ("bulk bytes in flight per SM (KiB)", "one fence (us)"),
        "Instruction cache": ("straight-line code (KiB)", "cycles per instruction of a warp"),
    }
    for _, layout in drawn(write_plot(probed(MEASURED))).values():
        assert layout["xaxis"]["rangemode"] == layout["yaxis"]["rangemode"] == "tozero"


def test_the_page_brings_plotly_along_and_loads_nothing() -> None:
    page = write_plot(probed(MEASURED))
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("</html>") == 1
    assert len(page) > 1_000_000, "plotly is not in it"
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", page[:5000] + page[-50_000:])
    assert "prefers-color-scheme: dark" in page


def test_what_was_not_measured_is_said() -> None:
    page = write_plot(probed({"stream": MEASURED["stream"]}))
    assert list(drawn(page)) == ["Stream ceiling"]
    for title in ("Hop from SM to SM", "Fence", "Instruction cache"):
        assert f"<p>{title}: not measured</p>" in page


def test_a_name_is_text_and_no_markup() -> None:
    page = write_plot(probed(MEASURED, name="</title><script>alert(1)</script>"))
    assert "alert(1)</script>" not in page
    assert "<title>musetrace probe: &lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;</title>" in page


def test_plotly_is_there() -> None:
    require_plotly()
