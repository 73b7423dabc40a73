"""The overlap view's callbacks as plain functions: what each section says of whole, odd and empty runs."""

from __future__ import annotations

from typing import Any

import pytest
from hostile import HOSTILE

from musetrace import analysis
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views import overlap
from musetrace.dashboard.views.overlap.engines import draw_shares, draw_use, use_over_time
from musetrace.dashboard.views.overlap.roofline import (
    LINEAR,
    LOG,
    bandwidths,
    draw_roofline,
    layers_words,
    roofline_row,
)
from musetrace.dashboard.views.span_quality import observed_words
from musetrace.figures.wording import shown
from musetrace.store import Run

EVERYTHING = Scope()


def said(figure: Any) -> str:
    """The sentence that a figure says instead of drawing."""
    return " ".join(one.text for one in figure.layout.annotations).replace("<br>", " ")


def roofline_of(run: Run, scope: Scope = EVERYTHING, scale: str = LINEAR) -> tuple[Any, str, Any]:
    return draw_roofline(run, lambda: bandwidths(run, scope), scale, "light")


def test_the_fields_of_the_address_are_the_scope_and_the_scale(decode: Run) -> None:
    runs = OpenRuns([decode])
    page = overlap.VIEW.layout(runs, RunRef(0), {"kind": "global", "scale": "log"})
    assert page.fields == {"kind": "global", "rank": "all", "step": "all", "scale": "log"}
    page = overlap.VIEW.layout(runs, RunRef(0), {"kind": "nope", "scale": "<b>"})
    assert (
        page.fields == page.defaults == {"kind": "sliding", "rank": "all", "step": "all", "scale": "linear"}
    )


def test_the_shares_and_the_use_are_over_what_was_chosen(decode: Run) -> None:
    scope = Scope("global", "1", "2")
    figure, note = draw_shares(decode, scope, "light")
    shares = analysis.overlap(decode, layer_kind="global", rank=1, step=2)["share"].to_pylist()
    assert list(figure.data[0].x) == [100 * share for share in shares]
    assert note == "whole bar: at least these engines are at work; dark line: and no other"
    figure, note = draw_use(decode, scope, "dark")
    table = analysis.utilisation(decode, layer_kind="global", rank=1, step=2, bins=240)
    assert list(figure.data[1].y) == [
        100 * row["compute_share"] for row in table.to_pylist() if row["block_ns"]
    ]  # fmt: skip
    assert "all kinds" not in note


def test_several_kinds_laid_over_each_other_are_said_to_be(decode: Run) -> None:
    assert "laid over each other: choose one kind" in draw_use(decode, EVERYTHING, "light")[1]


def test_bins_are_no_finer_than_the_clock_tells(coarse: Run, decode: Run, hostile: Run) -> None:
    for run, kind in ((decode, "sliding"), (coarse, "entry"), (hostile, HOSTILE[2])):
        table = use_over_time(run, Scope(kind))
        bin_ns, tick = table["end_ns"][0].as_py(), analysis.tick_ns(run)
        assert table.num_rows <= 240
        assert tick is None or bin_ns >= 8 * tick
    assert use_over_time(coarse, Scope("entry")).num_rows < 100
    assert use_over_time(decode, Scope("sliding")).num_rows == 240


def test_without_bytes_and_ceiling_the_sentences_say_how_to_get_both(decode: Run) -> None:
    figure, note, table = roofline_of(decode)
    assert "does not say how many bytes its jobs move" in said(figure)
    assert note == (
        "ceiling not known: no probe of the device is kept with the run: "
        "musetrace probe --keep RUN, on that device"
    )
    assert table is None


def test_the_roofline_of_a_recording_has_the_ceiling_that_was_probed_on_it(gpu_slice: Run) -> None:
    rows = bandwidths(gpu_slice, Scope("sliding")).to_pylist()
    for scale in (LINEAR, LOG):
        figure, note, table = roofline_of(gpu_slice, Scope("sliding"), scale)
        assert [(row["way"], row["bytes"]) for row in table.rowData] == [(x["way"], x["bytes"]) for x in rows]
        dots = next(trace for trace in figure.data if trace.name == "intervals")
        assert len(dots.x) > 5
        assert set(dots.x) <= {row["bandwidth_gb_s"] for row in rows}
        assert note == "ceiling 4,590 GB/s: musetrace probe, stream, n 20"
        assert figure.layout.annotations[0].text == "ceiling 4,590 GB/s"


def test_a_recording_without_a_probe_is_drawn_without_a_ceiling(two_ranks: Run) -> None:
    figure, note, table = roofline_of(two_ranks, Scope("sliding"))
    assert "musetrace probe --keep RUN" in note
    assert len(next(trace for trace in figure.data if trace.name == "intervals").x) > 5
    assert not figure.layout.annotations
    assert {row["ceiling"] for row in table.rowData} == {None}


def test_a_row_of_the_table_has_shares_in_percent_and_says_which_bytes_are_not_known() -> None:
    row = {
        "part": "op", "kind": "sliding", "name": "gemm1", "way": "reads", "layers": [-1, 0, 1, 2, 7], "n": 3,
        "unknown_jobs": ["gemm1_load"], "bytes_basis": "drawn", "ceiling_share": 0.5,
        "ceiling_share_low": 0.25, "ceiling_share_high": None,
    }  # fmt: skip
    told = roofline_row(row)
    assert (told["ceiling"], told["ceiling_low"], told["ceiling_high"]) == (50.0, 25.0, None)
    assert told["basis"] == "not known of gemm1_load: drawn"
    assert told["layers"] == "0-2, 7"


@pytest.mark.parametrize(
    ("layers", "words"), [([], ""), ([-1], ""), ([3], "3"), ([0, 2, 3, 4, 9], "0, 2-4, 9")]
)
def test_layers_are_ranges(layers: list[int], words: str) -> None:
    assert layers_words(layers) == words


def test_empty_and_unstamped_runs_say_why_there_is_nothing(empty: Run, unstamped: Run) -> None:
    for run, words in ((empty, "Nothing was stamped"), (unstamped, "stamps off")):
        for draw in (draw_shares, draw_use):
            figure, note = draw(run, EVERYTHING, "light")
            assert words in said(figure)
            assert note == ""
        assert said(roofline_of(run)[0]) != ""


def test_a_scope_that_the_run_has_not_is_a_sentence(decode: Run) -> None:
    for draw in (draw_shares, draw_use):
        assert "no rank 9 in this run" in said(draw(decode, Scope(rank="9"), "light")[0])
    assert "no rank 9 in this run" in said(roofline_of(decode, Scope(rank="9"))[0])


def test_what_was_lost_is_said(lossy: Run) -> None:
    note = draw_shares(lossy, EVERYTHING, "light")[1]
    assert "observed 50.0 %: 1 of 2 launches, 4 of 8 blocks" in note


def test_less_than_all_never_reads_as_all(lossy: Run) -> None:
    table = analysis.overlap(lossy)
    nearly = table.replace_schema_metadata({**table.schema.metadata, b"observed": b"0.99999"})
    assert observed_words(nearly)[0].startswith("observed 99.9 %")
    assert observed_words(table.replace_schema_metadata({**table.schema.metadata, b"observed": b"1.0"})) == []


def test_kinds_with_hostile_names_are_drawn(hostile: Run) -> None:
    figure, _ = draw_shares(hostile, Scope(HOSTILE[0]), "light")
    assert len(figure.data[0].x) == 9
    assert shown(HOSTILE[0]) not in str(figure)
