"""The overview's callbacks as plain functions."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from builders import JournalBuilder
from decode_run import KINDS, SCHEDULES, build_decode_run
from hostile import HOSTILE
from test_idle_view import links_of, text_of

from musetrace import analysis
from musetrace.analysis.spans.run_axis import origin_ns
from musetrace.cli.output import Screen
from musetrace.cli.report.document import Ranking, Sentence
from musetrace.cli.report.findings_section import finding_blocks
from musetrace.dashboard.open_runs import RunRef
from musetrace.dashboard.views.overview import view
from musetrace.job_table import JobTable
from musetrace.store import Run, open_run

REF = RunRef(0)


def test_findings_are_in_the_words_of_the_report(decode: Run) -> None:
    found, whole = view.show_findings(decode, REF)
    screen = Screen(200, unicode=True)
    blocks = finding_blocks(analysis.findings(decode), analysis.step_times(decode), screen)
    ranking = next(block for block in blocks if isinstance(block, Ranking))
    assert whole == blocks[0].text
    items = found[0].children
    assert len(items) == len(ranking.items)
    for item, mark, (headline, details, _) in zip(items, ranking.marks, ranking.items, strict=True):
        assert text_of(item).startswith(f"{mark}{headline}{details}")
    told = [block.text for block in blocks[1:] if isinstance(block, Sentence)]
    rest = [text_of(item) for item in found[1].children]
    assert [text.removesuffix(" by op") for text in rest] == told


def test_every_finding_leads_to_its_examples_and_its_what_if(decode: Run) -> None:
    found, _ = view.show_findings(decode, REF)
    causes = [row for row in analysis.findings(decode).to_pylist() if row["finding"] == "idle_cause"]
    for item, row in zip(found[0].children, causes, strict=False):
        links = dict(links_of(item))
        idle = dict(parse_qsl(urlsplit(links["examples"]).query))
        assert idle["cause"] == (row["wait"] or row["cause"])
        assert idle["kind"] in {one["kind"] for one in row["launches"]}
        assert ("if it were gone" in links) == (row["wait"] is not None)
        if row["wait"] is not None:
            what = dict(parse_qsl(urlsplit(links["if it were gone"]).query))["what"]
            assert analysis.what_if(decode, [what]).num_rows == 1
    changes = [
        dict(parse_qsl(urlsplit(href).query))["what"] for _, href in links_of(found[1]) if "what=" in href
    ]
    assert changes
    assert analysis.what_if(decode, changes).num_rows == len(changes)


def test_a_link_of_a_second_run_names_it(decode: Run) -> None:
    found, _ = view.show_findings(decode, RunRef(1))
    assert all("run=1&" in href for _, href in links_of(found))


def test_steps_and_parts_are_those_of_the_analysis(decode: Run) -> None:
    figure, table, note = view.show_steps(decode, "light")
    assert len(figure.data) == 2
    words = text_of(table)
    for row in analysis.step_times(decode).to_pylist():
        assert f"step, {row['clock']}" in words
        assert f"{row['step_p50_ns'] / 1000:,.1f}" in words
    assert "no draft and no accept in this run" in note
    assert "from 6 steps on" in note


def test_parts_that_are_there_are_told_and_are_not_called_absent(tmp_path: Path) -> None:
    kinds = ("draft_layer", *KINDS)
    schedules = {**SCHEDULES, "draft_layer": SCHEDULES["entry"]}
    run = open_run(build_decode_run(tmp_path, ranks=1, steps=1, kinds=kinds, schedules=schedules))
    _, table, note = view.show_steps(run, "light")
    assert "draft" in text_of(table)
    assert "no accept in this run" in note
    assert "no draft" not in note


def test_a_slow_step_is_named(tmp_path: Path) -> None:
    journal = JournalBuilder(tmp_path, JobTable.built_in(), 1, slot_bytes=4)
    from decode_run import write_step

    for step in range(8):
        launches = [("entry", SCHEDULES["entry"])] * (4 if step == 5 else 1)
        write_step(journal, step, launches)
    journal.end()
    figure, _, note = view.show_steps(open_run(tmp_path), "light")
    assert "step 5 takes" in note
    assert list(figure.data[-1].x) == [5]


def test_the_strip_is_drawn(decode: Run) -> None:
    figure, note = view.draw_strip(decode, "dark")
    assert figure.data[0].z.shape == (1, 6)
    assert "median" in note


def test_a_cell_of_the_strip_leads_to_a_launch_of_its_median_length(decode: Run) -> None:
    for at, row in enumerate(analysis.launch_strip(decode).to_pylist()):
        where = urlsplit(view.launch_clicked(decode, REF, {"points": [{"x": at, "y": 0}]}))
        assert where.path == "/timeline"
        query = dict(parse_qsl(where.query))
        launches = decode.launches(int(query["ranks"])).to_pylist()
        begin, end = (int(query[name]) + origin_ns(decode) for name in ("from", "to"))
        inside = [one for one in launches if begin <= one["begin_ns"] and one["end_ns"] <= end]
        assert [one["launch"] for one in inside] == [row["launch"]]
        assert inside[0]["end_ns"] - inside[0]["begin_ns"] == row["launch_p50_ns"]
    for odd in (None, {}, {"points": [{"x": 99}]}):
        assert view.launch_clicked(decode, REF, odd) == ""


def test_an_empty_run_says_why_there_is_nothing(empty_path: Path) -> None:
    run = open_run(empty_path)
    assert "No step was recorded" in view.show_steps(run, "light")[0].layout.annotations[0].text
    assert "Nothing was stamped" in view.draw_strip(run, "light")[0].layout.annotations[0].text
    assert "Nothing was stamped" in text_of(view.show_findings(run, REF)[0])


def test_without_stamps_host_times_remain(tmp_path: Path) -> None:
    journal = JournalBuilder(tmp_path, JobTable.built_in(), 2, slot_bytes=4, meta={"stamps": "off"})
    for step in range(3):
        journal.step(step, 1_000 + 10_000 * step, 9_000 + 10_000 * step)
    journal.end()
    run = open_run(tmp_path)
    figure, _, _ = view.show_steps(run, "light")
    assert [trace.name for trace in figure.data] == ["host"]
    assert list(figure.data[0].y) == [8.0] * 3
    assert "stamps off" in view.draw_strip(run, "light")[0].layout.annotations[0].text
    assert "stamps off" in text_of(view.show_findings(run, REF)[0])


@pytest.mark.parametrize("path", ["hostile_path", "tiny_path", "coarse_path"])
def test_runs_of_odd_names_of_one_launch_and_of_a_coarse_clock_have_findings(
    path: str, request: pytest.FixtureRequest
) -> None:
    run = open_run(request.getfixturevalue(path))
    found, whole = view.show_findings(run, REF)
    assert whole.startswith("an average block is idle for")
    assert text_of(found)
    if path == "hostile_path":
        assert "nothing is ranked" in whole
        assert any(name in text_of(found) for name in HOSTILE)
