"""The op view's callbacks as plain functions, and the state that the address bar holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from builders import build_run_from_text
from conftest import HOSTILE
from dash import no_update
from hypothesis import given
from hypothesis import strategies as st

from musetrace.dashboard.choices import Choices
from musetrace.dashboard.op_state import FIELDS, OpState, parse_query, parse_rows
from musetrace.dashboard.views import op_view
from musetrace.errors import AnalysisError
from musetrace.store import Run, open_run

HINT = "Point at a lane to read its spans to the nanosecond."


def values(state: OpState) -> tuple[str, ...]:
    return tuple(getattr(state, name) for name in FIELDS)


def test_the_first_view_is_the_kind_with_most_time_over_everything_and_one_launch_of_it(decode: Run) -> None:
    assert Choices(decode).default == OpState("sliding", "all", "all", "1", "2", "all")


def test_an_address_without_a_query_and_the_default_are_the_same_view(decode: Run) -> None:
    choices = Choices(decode)
    assert choices.parse("") == choices.parse(None) == choices.default
    assert choices.query(choices.default) == ""


@given(st.data())
def test_an_address_restores_the_view_that_wrote_it(decode: Run, data: st.DataObject) -> None:
    choices = Choices(decode)
    lane_step = data.draw(st.sampled_from("012"))
    state = OpState(
        kind=data.draw(st.sampled_from(["all", "entry", "sliding", "global", "head"])),
        rank=data.draw(st.sampled_from(["all", "0", "1"])),
        step=data.draw(st.sampled_from(["all", "0", "1", "2"])),
        lane_step=lane_step,
        launch=data.draw(st.sampled_from("012345")),
        rows=data.draw(st.sampled_from(["all", "r0", "r1", "r0b0", "r1b3"])),
    )
    assert choices.parse(choices.query(state)) == state


@pytest.mark.parametrize(
    "query",
    [
        "?kind=nope&rank=7&step=-1&lane_step=99&launch=1e3&rows=r9b9",
        "?rows=r0b99&rank=0.0&step=%00",
        "?rows=" + "r0" * 5000,
        "?" + "&".join("kind=sliding" for _ in range(1000)),
        "?kind=<img src=x>&unknown=1",
        "?=&&==&%zz",
    ],
)
def test_what_the_run_has_not_falls_back_to_the_default(decode: Run, query: str) -> None:
    choices = Choices(decode)
    assert choices.parse(query) == choices.default


@given(st.text(max_size=60))
def test_any_query_gives_a_view_that_can_be_drawn(decode: Run, text: str) -> None:
    choices = Choices(decode)
    for query in (text, "?rows=" + text, "?kind=" + text, "?launch=" + text):
        state = choices.parse(query)
        options = choices.options(state)
        assert all(
            value in {option.value for option in options[name]}
            for name, value in zip(FIELDS, values(state), strict=True)
        )


def test_only_known_fields_are_taken_from_a_query() -> None:
    assert parse_query("?kind=a%26b&file=/etc/passwd&rank=0") == {"kind": "a&b", "rank": "0"}


@pytest.mark.parametrize("rows", ["", "r", "r1b", "b1", "R1", "r1b2c", "r\N{ARABIC-INDIC DIGIT ONE}", "r-1"])
def test_rows_that_are_none_are_not_taken_for_some(rows: str) -> None:
    assert parse_rows(rows) is None


def test_the_pickers_follow_the_address(decode: Run) -> None:
    choices = Choices(decode)
    answer = op_view.synchronise(choices, True, "?kind=global&rank=1&rows=r0b2", values(choices.default))
    assert answer[0] is no_update
    assert answer[1:7] == ("global", "1", "all", "1", "2", "r0b2")


def test_the_address_follows_the_pickers(decode: Run) -> None:
    choices = Choices(decode)
    query, *rest = op_view.synchronise(choices, False, "", ("entry", "0", "2", "0", "3", "r1"))
    assert parse_query(query) == {
        "kind": "entry", "rank": "0", "step": "2", "lane_step": "0", "launch": "3", "rows": "r1",
    }  # fmt: skip
    assert rest[:6] == ["entry", "0", "2", "0", "3", "r1"]


def test_launches_are_named_by_layer_and_lone_kinds_by_kind(decode: Run) -> None:
    launches = op_view.synchronise(Choices(decode), True, "", ("all",) * 6)[7]
    assert [one["label"] for one in launches] == [
        "entry", "layer 0, sliding", "layer 1, sliding", "global", "layer 3, sliding", "head",
    ]  # fmt: skip


def drawn_kinds(figure: Any) -> set[str]:
    return {trace.name for trace in figure.data if trace.type == "bar"}


def test_the_op_timeline_is_over_what_was_chosen(decode: Run) -> None:
    figure, note = op_view.draw_ops(decode, "sliding", "all", "all", "light")
    assert "<b>stop3</b>" in figure.layout.yaxis.ticktext
    assert "whiskers" in note
    entry, _ = op_view.draw_ops(decode, "entry", "1", "2", "dark")
    assert entry.layout.yaxis.ticktext == ("entry", "qkv", "kv_write")
    assert drawn_kinds(entry) == {"load", "compute", "send"}


def sentence_in(figure: Any) -> str:
    assert not figure.data
    return " ".join(" ".join(mark.text.split("<br>")) for mark in figure.layout.annotations)


def test_a_question_that_the_run_cannot_answer_is_one_sentence(decode: Run) -> None:
    figure, note = op_view.draw_ops(decode, "sliding", "9", "all", "light")
    assert "no rank 9 in this run" in sentence_in(figure)
    assert note == ""


def test_a_defect_is_one_sentence_with_an_id_and_no_stack(
    decode: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(op_view, "op_timeline", fail)
    sentence = sentence_in(op_view.draw_ops(decode, "sliding", "all", "all", "light")[0])
    assert "secret" not in sentence
    assert "Traceback" not in sentence
    fault = sentence.removesuffix(".").split()[-1]
    assert f"fault {fault}" in caplog.text
    assert "secret detail" in caplog.text
    lanes, _ = op_view.draw_lanes(
        decode, lambda *key: op_view.load_lanes(decode, *key), ("0", "1", "all"), "light"
    )
    assert lanes.data, "the other graph goes on"


def test_a_run_that_vanished_says_so(tmp_path: Path, decode_path: Path) -> None:
    shutil.copytree(decode_path, tmp_path / "run")
    run = open_run(tmp_path / "run")
    choices = Choices(run)
    shutil.rmtree(tmp_path / "run")
    figure, _ = op_view.draw_ops(run, "sliding", "all", "all", "light")
    assert sentence_in(figure)
    assert "Traceback" not in sentence_in(figure)
    answer = op_view.synchronise(choices, True, "?rank=1", values(choices.default))
    assert len(answer) == 9


def test_a_sentence_in_a_figure_is_shown_literally(decode: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AnalysisError(f"no such thing as {HOSTILE[0]}")

    monkeypatch.setattr(op_view, "op_timeline", fail)
    text = sentence_in(op_view.draw_ops(decode, "sliding", "all", "all", "light")[0])
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_an_empty_run_and_one_without_stamps_say_why_there_is_nothing(
    empty_path: Path, tmp_path: Path
) -> None:
    empty = open_run(empty_path)
    state = Choices(empty).default
    assert values(state) == ("all", "all", "all", "all", "all", "all")
    assert "Nothing was stamped" in sentence_in(op_view.draw_ops(empty, "all", "all", "all", "light")[0])
    lanes, _ = op_view.draw_lanes(empty, lambda *_: pytest.fail("nothing to load"), ("all",) * 3, "light")
    assert "Nothing was stamped" in sentence_in(lanes)
    assert op_view.layout(empty) is not None


def load(run: Run) -> Any:
    return lambda *key: op_view.load_lanes(run, *key)


def test_the_readout_has_the_exact_times_of_the_span_under_the_pointer(tiny_path: Path) -> None:
    run = open_run(tiny_path)
    hover = {"points": [], "xvals": [600.0], "yvals": [0.5]}
    readout = op_view.read_lane(load(run), hover, ("0", "0", "r0b0"))
    text = json.dumps([part.to_plotly_json() for part in readout], default=lambda part: part.to_plotly_json())
    assert '"attention_load_k"' in text
    assert '"nearest, rank 0, block 0, warp 0"' in text
    assert '"123,457"' in text
    assert op_view.read_lane(load(run), {**hover, "yvals": [1.5]}, ("0", "0", "r0b0")) == HINT, (
        "warp 1 has none"
    )
    in_group = op_view.read_lane(load(run), {**hover, "yvals": [4.5]}, ("0", "0", "r0b0"))
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
    lanes, note = op_view.draw_lanes(run, load(run), ("0", "0", "all"), "light")
    for said in (note, op_view.draw_ops(run, "sliding", "all", "all", "light")[1]):
        assert "; 1 shorter than the clock's tick" in said
    bars = [trace for trace in lanes.data if trace.type == "bar"]
    texts = [text for trace in bars for texts in trace.customdata for text in texts]
    assert texts.count("\N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}32 ns") == 2, "both spans are drawn"
    hover = {"points": [], "xvals": [3.2], "yvals": [4.5]}
    readout = op_view.read_lane(load(run), hover, ("0", "0", "r0b0"))
    assert readout[-1].children == "each \N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}32 ns"


def test_the_first_view_does_not_hang_on_less_than_the_clock_can_tell(tmp_path: Path) -> None:
    def first_kind(apart_ns: int, tick_ns: int | None) -> str:
        text = f"""
        r0 s0 l0 layer=0 sliding b0 w4 attention_compute 32000 35200
        r0 s0 l1 layer=1 global  b0 w4 attention_compute 40000 {43200 + apart_ns}
        """
        meta = {"clock": {"name": "globaltimer", "tick_ns": tick_ns}}
        folder = tmp_path / f"{apart_ns} {tick_ns}"
        return Choices(open_run(build_run_from_text(folder, text, blocks=1, meta=meta))).default.kind

    assert first_kind(63, 32) == "sliding"
    assert first_kind(64, 32) == "global"
    assert first_kind(1, None) == "global"


def test_the_note_counts_what_is_left_out(tmp_path: Path) -> None:
    text = """
    r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000 2000
    r0 s0 l0 layer=0 sliding b1 w4 attention_compute 1000 -
    """
    run = open_run(build_run_from_text(tmp_path, text, blocks=2))
    assert "1 flagged span left out" in op_view.draw_ops(run, "sliding", "all", "all", "light")[1]
    assert "1 flagged span left out" in op_view.draw_lanes(run, load(run), ("0", "0", "all"), "light")[1]
