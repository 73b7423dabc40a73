"""The idle view's callbacks as plain functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from builders import JournalBuilder, build_run_from_text
from dash import no_update
from hostile import HOSTILE

from musetrace import analysis
from musetrace.analysis.spans.run_axis import origin_ns
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.scope_answers import ScopeAnswers
from musetrace.dashboard.views.idle import shown, tables
from musetrace.job_table import JobTable
from musetrace.store import Run, open_run

SLIDING = Scope("sliding")
STOP = "stop4_wait_ranks"


def asked(run: Run, scope: Scope = SLIDING) -> ScopeAnswers:
    return ScopeAnswers(OpenRuns([run]), RunRef(0), scope)


def text_of(component: Any) -> str:
    """All text of a component, as the page shows it."""
    if isinstance(component, (list, tuple)):
        return "".join(map(text_of, component))
    if component is None or isinstance(component, (str, int, float)):
        return "" if component is None else str(component)
    return text_of(getattr(component, "children", None))


def links_of(component: Any) -> list[tuple[str, str]]:
    """Words and addresses of all links in a component."""
    if isinstance(component, (list, tuple)):
        return [link for one in component for link in links_of(one)]
    found = [(text_of(component), component.href)] if hasattr(component, "href") else []
    return found + (links_of(component.children) if hasattr(component, "children") else [])


def test_busy_and_idle_are_the_wall_to_the_nanosecond(decode: Run) -> None:
    sums, _, _ = shown.show_causes(asked(decode), "")
    blocks = analysis.block_busy(decode, layer_kind="sliding").to_pylist()
    busy, idle, wall = (sum(row[f"{name}_ns"] for row in blocks) for name in ("busy", "idle", "wall"))
    assert busy + idle == wall
    assert f"busy {busy:,} + idle {idle:,} = wall {wall:,} ns" in text_of(sums)
    assert f"the causes sum to {idle:,}" in text_of(sums)
    assert "tone-bad" not in sums.className


def test_sums_that_do_not_agree_are_said_to(decode: Run) -> None:
    blocks = analysis.block_busy(decode, layer_kind="sliding")
    sums = tables.sums(analysis.idle(decode, layer_kind="global"), blocks)
    assert "do not agree" in text_of(sums)
    assert "tone-bad" in sums.className


def test_causes_are_the_tables_largest_first(decode: Run) -> None:
    _, table, _ = shown.show_causes(asked(decode), STOP)
    rows = {
        row["wait"] or row["cause"]: row for row in analysis.idle(decode, layer_kind="sliding").to_pylist()
    }
    assert {row["name"] for row in table.rowData} == set(rows)
    for row in table.rowData:
        of = rows[row["name"]]
        assert (row["us"], row["off"]) == (of["idle_mean_ns"] / 1000, of["idle_mean_uncertainty_ns"])
        assert (row["share"], row["of_time"]) == (100 * of["share"], 100 * of["share_of_time"])
    totals = [rows[row["name"]]["total_ns"] for row in table.rowData if row["place"].endswith(".")]
    assert totals == sorted(totals, reverse=True)
    (chosen,) = table.selectedRows["ids"]
    assert table.rowData[int(chosen)]["name"] == STOP


def test_nothing_is_ranked_where_the_tick_is_not_known(hostile_path: Path) -> None:
    run = open_run(hostile_path)
    _, table, note = shown.show_causes(asked(run, Scope()), "")
    assert {row["place"] for row in table.rowData} == {"-"}
    assert "nothing is ranked" in note
    places, after, _ = shown.show_places(asked(run, Scope()))
    assert {row["place"] for row in places[0].rowData} == {"-"}
    assert {row["most"] for row in places[0].rowData} == {"cannot tell"}
    assert {row["off"] for row in after.rowData} == {None}


def test_examples_lead_to_the_timeline_around_them(decode: Run) -> None:
    panel, _ = shown.show_examples(asked(decode), STOP)
    rows = analysis.idle_examples(decode, STOP, layer_kind="sliding").to_pylist()
    links = [(words, dict(parse_qsl(urlsplit(href).query))) for words, href in links_of(panel)]
    to_timeline = [(words, query) for words, query in links if "span" in query]
    assert len(to_timeline) == 2 * len(rows) == 20
    for row, (words, query), (producer, late) in zip(rows, to_timeline[::2], to_timeline[1::2], strict=True):
        place = (row["rank"], row["step"], row["launch"], row["block"])
        assert words == "rank {}, step {}, launch {}, block {}".format(*place)
        begin = row["at_ns"] - origin_ns(decode)
        assert int(query["from"]) <= begin < begin + row["length_ns"] <= int(query["to"])
        middle = (int(query["from"]) + int(query["to"])) / 2
        assert int(query["from"]) == 0 or middle == pytest.approx(begin + row["length_ns"] / 2, abs=1)
        assert query["span"] == f"{row['rank']}.{row['step']}.{row['span']}"
        assert producer == f"rank {row['producer_rank']}, block {row['producer_block']}"
        assert late["span"] == f"{row['producer_rank']}.{row['step']}.{row['producer_span']}"
        both = row["rank"] != row["producer_rank"]
        assert query["ranks"] == late["ranks"] == ("all" if both else str(row["rank"]))
        first, past = int(query["row_from"]), int(query["row_to"])
        for rank, block in ((row["rank"], row["block"]), (row["producer_rank"], row["producer_block"])):
            assert first <= block + (4 * rank if both else 0) < past <= (8 if both else 4)
        assert f"{row['late_ns']:,} late" in text_of(panel) or row["late_ns"] < 0


def test_examples_of_a_stop_lead_to_its_what_if_and_its_stop(decode: Run) -> None:
    panel, _ = shown.show_examples(asked(decode), STOP)
    links = dict(links_of(panel))
    assert links["if this wait were gone"] == f"/path?kind=sliding&rank=all&step=all&what={STOP}%3Dgone"
    assert links["who is late at stop4"] == "/stops?kind=sliding&step=all&stop=stop4"


def test_a_cause_that_is_no_wait_has_examples_without_a_producer(decode: Run) -> None:
    panel, _ = shown.show_examples(asked(decode), "tail")
    assert "blocks have no work left" in text_of(panel)
    assert not any("span=" in href or "what=" in href for _, href in links_of(panel))
    assert any(href.startswith("/launches") for _, href in links_of(panel))


def test_the_first_cause_of_the_table_is_shown_unless_another_is_chosen(decode: Run) -> None:
    first = tables.key_of(tables.ranked_causes(analysis.idle(decode, layer_kind="sliding"))[0])
    panel, files = shown.show_examples(asked(decode), "")
    assert text_of(panel) == text_of(shown.show_examples(asked(decode), first)[0])
    assert dict(parse_qsl(urlsplit(files[0].href).query))["cause"] == first


@pytest.mark.parametrize(
    ("cause", "says"), [("nope", "no cause of idle time 'nope'"), (STOP, "no block was idle for it")]
)
def test_a_cause_that_is_not_there_is_one_sentence(decode: Run, cause: str, says: str) -> None:
    panel, _ = shown.show_examples(asked(decode, Scope("entry")), cause)
    assert says in text_of(panel)


def test_what_is_clicked_becomes_the_cause(decode: Run) -> None:
    _, table, _ = shown.show_causes(asked(decode), "")
    row = table.rowData[2]
    assert shown.cause_of_row([row], "") == row["name"]
    assert shown.cause_of_row([row], row["name"]) is no_update  # chosen already
    assert shown.cause_of_row([table.rowData[0]], "") is no_update  # the page chose it
    assert shown.cause_of_row([], "") is shown.cause_of_row(None, "") is no_update
    cause, chosen = shown.cause_of_cell(asked(decode), {"points": [{"x": 3, "y": 2}]})
    assert (cause, chosen) == (row["name"], {"ids": ["2"]})
    for odd in (None, {}, {"points": []}, {"points": [{"y": 99}]}, {"points": [{"y": "x"}]}):
        assert shown.cause_of_cell(asked(decode), odd) == (no_update, no_update)


def test_blocks_and_ranks_are_the_tables_with_the_most_idle_first(decode: Run) -> None:
    (blocks, _, ranks), after, note = shown.show_places(asked(decode))
    busy = {
        (row["rank"], row["block"]): row
        for row in analysis.block_busy(decode, layer_kind="sliding").to_pylist()
    }
    assert {(row["rank"], row["block"]) for row in blocks.rowData} == set(busy)
    for row in blocks.rowData:
        of = busy[row["rank"], row["block"]]
        assert row["us"] == of["idle_ns"] / of["launches"] / 1000
        assert row["share"] == pytest.approx(100 * of["idle_ns"] / of["wall_ns"], rel=1e-12)
        assert row["off"] == -(-of["idle_uncertainty_ns"] // of["launches"])
    for row in ranks.rowData:
        mine = [of for (rank, _), of in busy.items() if rank == row["rank"]]
        share = sum(x["idle_ns"] for x in mine) / sum(x["wall_ns"] for x in mine)
        assert row["share"] == pytest.approx(100 * share, rel=1e-12)
    gaps = {row["op"]: row for row in analysis.idle_after(decode, layer_kind="sliding").to_pylist()}
    assert {row["op"]: row["us"] for row in after.rowData} == {
        op: row["idle_mean_ns"] / 1000 for op, row in gaps.items()
    }
    assert note.startswith("from the end of ")


def test_one_span_is_shown(tiny_path: Path) -> None:
    answers = asked(open_run(tiny_path))
    sums, table, _ = shown.show_causes(answers, "")
    assert "busy 1,111,106 + idle 188,905 = wall 1,300,011 ns" in text_of(sums)
    assert [row["name"] for row in table.rowData] == ["load_only", "stop1_wait_ranks", "unlabelled"]
    assert "none in this launch" in text_of(shown.show_examples(answers, "stop1_wait_ranks")[0])


@pytest.mark.parametrize("scope", [Scope(), Scope("sliding", "9"), Scope("nope")])
def test_an_empty_run_says_why_there_is_nothing(empty_path: Path, scope: Scope) -> None:
    answers = asked(open_run(empty_path), scope)
    said = text_of(shown.show_causes(answers, "")) + text_of(shown.show_examples(answers, ""))
    assert "Nothing was stamped" in said or "in this run" in said or "in what was chosen" in said
    figure, note = shown.draw_blocks(answers, "", "light")
    assert not figure.data
    assert note == ""
    assert not shown.show_places(answers)[1]


def test_without_stamps_it_is_said(tmp_path: Path) -> None:
    journal = JournalBuilder(tmp_path, JobTable.built_in(), 2, slot_bytes=4, meta={"stamps": "off"})
    journal.step(0, 1_000, 9_000)
    journal.end()
    answers = asked(open_run(tmp_path), Scope())
    assert "recorded with stamps off" in text_of(shown.show_causes(answers, ""))
    assert "recorded with stamps off" in text_of(shown.show_examples(answers, "")[0])


def test_a_run_that_is_never_idle_says_so(tmp_path: Path) -> None:
    line = "r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000 2000\n"
    run = open_run(build_run_from_text(tmp_path, line, blocks=1))
    assert "No block was idle" in text_of(shown.show_causes(asked(run), ""))
    assert "No block was idle" in text_of(shown.show_examples(asked(run), "")[0])
    places, _, _ = shown.show_places(asked(run))
    assert [row["most"] for row in places[0].rowData] == ["\N{EN DASH}"]


def test_what_was_not_recorded_is_said(tmp_path: Path) -> None:
    """Block 1 of two reports in one launch of two; a span that has no end."""
    text = """
    r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000 2000
    r0 s0 l0 layer=0 sliding b1 w4 attention_compute 1000 1500
    r0 s0 l1 layer=1 sliding b0 w4 attention_compute 3000 3700
    r0 s0 l1 layer=1 sliding b0 w4 attention_merge   3800 -
    """
    run = open_run(build_run_from_text(tmp_path, text, blocks=2))
    note = shown.show_causes(asked(run), "")[2]
    assert note.startswith("observed ")
    assert "spans" in note
    assert "1 flagged span left out" in note


def test_names_are_given_to_the_page_as_text(hostile_path: Path) -> None:
    run = open_run(hostile_path)
    answers = asked(run, Scope())
    _, table, _ = shown.show_causes(answers, "")
    names = [row["cause"] for row in table.rowData]
    assert any(HOSTILE[0] in name for name in names)
    assert not any("\u202e" in name or "\x00" in name for name in names)
    for row in table.rowData:
        panel, _ = shown.show_examples(answers, row["name"])
        assert text_of(panel)
