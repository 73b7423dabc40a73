"""The op view's callbacks as plain functions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from builders import build_run_from_text
from hostile import HOSTILE

from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views import op_view
from musetrace.dashboard.views.both_timelines import draw_both
from musetrace.errors import AnalysisError
from musetrace.store import Run, open_run

SLIDING = Scope("sliding")


def drawn_kinds(figure: Any) -> set[str]:
    return {trace.name for trace in figure.data if trace.type == "bar"}


def test_the_op_timeline_is_over_what_was_chosen(decode: Run) -> None:
    figure, note = op_view.draw_ops(decode, SLIDING, "light")
    assert "<b>stop3</b>" in figure.layout.yaxis.ticktext
    assert "whiskers" in note
    entry, _ = op_view.draw_ops(decode, Scope("entry", "1", "2"), "dark")
    assert entry.layout.yaxis.ticktext == ("entry", "qkv", "kv_write")
    assert drawn_kinds(entry) == {"load", "compute", "send"}


def sentence_in(figure: Any) -> str:
    assert not figure.data
    return " ".join(" ".join(mark.text.split("<br>")) for mark in figure.layout.annotations)


def test_a_question_that_the_run_cannot_answer_is_one_sentence(decode: Run) -> None:
    figure, note = op_view.draw_ops(decode, Scope("sliding", "9"), "light")
    assert "no rank 9 in this run" in sentence_in(figure)
    assert note == ""


def test_a_defect_is_one_sentence_with_an_id_and_no_stack(
    decode: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(op_view, "op_timeline", fail)
    sentence = sentence_in(op_view.draw_ops(decode, SLIDING, "light")[0])
    assert "secret" not in sentence
    assert "Traceback" not in sentence
    fault = sentence.removesuffix(".").split()[-1]
    assert f"fault {fault}" in caplog.text
    assert "secret detail" in caplog.text


def test_a_run_that_vanished_says_so(tmp_path: Path, decode_path: Path) -> None:
    shutil.copytree(decode_path, tmp_path / "run")
    run = open_run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    figure, _ = op_view.draw_ops(run, SLIDING, "light")
    assert sentence_in(figure)
    assert "Traceback" not in sentence_in(figure)


def test_a_sentence_in_a_figure_is_shown_literally(decode: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AnalysisError(f"no such thing as {HOSTILE[0]}")

    monkeypatch.setattr(op_view, "op_timeline", fail)
    text = sentence_in(op_view.draw_ops(decode, SLIDING, "light")[0])
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_an_empty_run_says_why_there_is_nothing(empty_path: Path) -> None:
    empty = open_run(empty_path)
    assert "Nothing was stamped" in sentence_in(op_view.draw_ops(empty, Scope(), "light")[0])
    runs = OpenRuns([empty])
    assert op_view.layout(runs, runs.ref(0), {}).fields == {
        "kind": "all", "rank": "all", "step": "all", "beside": "none",
    }  # fmt: skip


def test_the_note_counts_spans_below_the_tick(tmp_path: Path) -> None:
    text = """
    r0 s0 l0 layer=0 sliding b0 w4 attention_compute 32000 35200
    r0 s0 l0 layer=0 sliding b0 w4 attention_merge   35200 35200
    """
    meta = {"clock": {"name": "globaltimer", "tick_ns": 32}}
    run = open_run(build_run_from_text(tmp_path, text, blocks=1, meta=meta))
    assert "; 1 shorter than the clock's tick" in op_view.draw_ops(run, SLIDING, "light")[1]


def test_the_note_counts_what_is_left_out(tmp_path: Path) -> None:
    text = """
    r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000 2000
    r0 s0 l0 layer=0 sliding b1 w4 attention_compute 1000 -
    """
    run = open_run(build_run_from_text(tmp_path, text, blocks=2))
    assert "1 flagged span left out" in op_view.draw_ops(run, SLIDING, "light")[1]


def test_a_second_run_can_stand_below_and_nothing_else_can(decode: Run, tiny_path: Path) -> None:
    runs = OpenRuns([decode, open_run(tiny_path)])
    for text, beside in (("1", "1"), ("0", "none"), ("2", "none"), ("", "none"), ("<b>", "none")):
        page = op_view.layout(runs, runs.ref(0), {"beside": text})
        assert (page.fields["beside"], page.defaults["beside"]) == (beside, "none")
    assert op_view.layout(runs, runs.ref(1), {"beside": "0"}).fields["beside"] == "0"


def test_two_runs_stand_one_above_the_other_on_one_axis(decode: Run, tiny_path: Path) -> None:
    runs = OpenRuns([decode, open_run(tiny_path)])
    refs = (runs.ref(0), runs.ref(1))
    figure, _ = draw_both(runs, refs, SLIDING, "light")
    alone, _ = op_view.draw_ops(decode, SLIDING, "light")
    below, _ = op_view.draw_ops(open_run(tiny_path), SLIDING, "light")
    assert figure.layout.yaxis.ticktext == alone.layout.yaxis.ticktext + below.layout.yaxis.ticktext
    assert figure.layout.xaxis.range[1] == max(one.layout.xaxis.range[1] for one in (alone, below))
    titles = [mark.text for mark in figure.layout.annotations if mark.xref == "paper"]
    assert [title[:6] for title in titles] == ["<b>A: ", "<b>B: "]


def test_a_scope_that_the_second_run_does_not_have_is_said_of_it(decode: Run, tiny_path: Path) -> None:
    runs = OpenRuns([decode, open_run(tiny_path)])
    refs = (runs.ref(0), runs.ref(1))
    figure, notes = draw_both(runs, refs, Scope("global"), "light")
    assert sentence_in(figure).startswith("B, ")
    assert "no launch of kind 'global'" in sentence_in(figure)
    assert notes == []
