"""The view of one launch's lanes: its callbacks as plain functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import build_run_from_text

from musetrace.dashboard.lane_choices import LaneState
from musetrace.dashboard.views import lanes_view
from musetrace.store import Run, open_run

HINT = "Point at a lane to read its spans to the nanosecond."
ALL_LANES, ONE_BLOCK = LaneState("0", "0", "all"), LaneState("0", "0", "r0b0")


def load(run: Run) -> Any:
    return lambda state: lanes_view.load_lanes(run, state)


def test_the_readout_has_the_exact_times_of_the_span_under_the_pointer(tiny_path: Path) -> None:
    run = open_run(tiny_path)
    hover = {"points": [], "xvals": [600.0], "yvals": [0.5]}
    readout = lanes_view.read_lane(load(run), hover, ONE_BLOCK)
    text = json.dumps([part.to_plotly_json() for part in readout], default=lambda part: part.to_plotly_json())
    assert '"attention_load_k"' in text
    assert '"nearest, rank 0, block 0, warp 0"' in text
    assert '"123,457"' in text
    assert lanes_view.read_lane(load(run), {**hover, "yvals": [1.5]}, ONE_BLOCK) == HINT, "warp 1 has none"
    in_group = lanes_view.read_lane(load(run), {**hover, "yvals": [4.5]}, ONE_BLOCK)
    text = json.dumps(
        [part.to_plotly_json() for part in in_group], default=lambda part: part.to_plotly_json()
    )
    for exact in (
        '"attention_compute"',
        '"rank 0, block 0, warp 4"',
        '"123,461"',
        '"1,234,567"',
        '"1,111,106"',
    ):
        assert exact in text


def test_the_notes_count_spans_below_the_tick_and_the_readout_has_its_uncertainty(tmp_path: Path) -> None:
    text = """
    r0 s0 l0 layer=0 sliding b0 w4 attention_compute 32000 35200
    r0 s0 l0 layer=0 sliding b0 w4 attention_merge   35200 35200
    """
    meta = {"clock": {"name": "globaltimer", "tick_ns": 32}}
    run = open_run(build_run_from_text(tmp_path, text, blocks=1, meta=meta))
    lanes, note = lanes_view.draw_lanes(run, load(run), ALL_LANES, "light")
    assert "; 1 shorter than the clock's tick" in note
    bars = [trace for trace in lanes.data if trace.type == "bar"]
    texts = [text for trace in bars for texts in trace.customdata for text in texts]
    assert texts.count("\N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}32 ns") == 2, "both spans are drawn"
    hover = {"points": [], "xvals": [3.2], "yvals": [4.5]}
    readout = lanes_view.read_lane(load(run), hover, ONE_BLOCK)
    assert readout[-1].children == "each \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}32 ns"


def test_the_note_counts_what_is_left_out(tmp_path: Path) -> None:
    text = """
    r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000 2000
    r0 s0 l0 layer=0 sliding b1 w4 attention_compute 1000 -
    """
    run = open_run(build_run_from_text(tmp_path, text, blocks=2))
    assert "1 flagged span left out" in lanes_view.draw_lanes(run, load(run), ALL_LANES, "light")[1]


def test_an_empty_run_says_why_there_is_nothing(empty_path: Path) -> None:
    empty, nothing = open_run(empty_path), LaneState("all", "all", "all")
    lanes, _ = lanes_view.draw_lanes(empty, lambda _: pytest.fail("nothing to load"), nothing, "light")
    (mark,) = lanes.layout.annotations
    assert "Nothing was stamped" in mark.text
