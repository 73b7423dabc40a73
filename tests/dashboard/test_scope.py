"""What a run has to choose from, and which state an address means."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import build_run_from_text
from hypothesis import given
from hypothesis import strategies as st

from musetrace.dashboard.address import address, parse_query, run_index, write_query
from musetrace.dashboard.scope import Scope, ScopeChoices
from musetrace.store import Run, open_run

QUERIES = [
    "?kind=nope&rank=7&step=-1&launch=1e3&lanes=r9b9",
    "?lanes=r0b99&rank=0.0&step=%00",
    "?lanes=" + "r0" * 5000,
    "?" + "&".join("kind=sliding" for _ in range(1000)),
    "?kind=<img src=x>&unknown=1",
    "?=&&==&%zz",
]


def test_the_first_view_is_the_kind_with_most_time_over_everything(decode: Run) -> None:
    assert ScopeChoices(decode).default == Scope("sliding", "all", "all")


@given(st.sampled_from(["all", "entry", "sliding", "global", "head"]), st.sampled_from("012"), st.data())
def test_an_address_restores_the_state_that_wrote_it(
    decode: Run, kind: str, step: str, data: st.DataObject
) -> None:
    scope = Scope(
        kind, data.draw(st.sampled_from(["all", "0", "1"])), data.draw(st.sampled_from(["all", step]))
    )
    assert ScopeChoices(decode).settle(parse_query(write_query(scope.fields()))) == scope


@pytest.mark.parametrize("query", QUERIES)
def test_what_the_run_has_not_falls_back_to_the_default(decode: Run, query: str) -> None:
    known = parse_query(query)
    expected = Scope("sliding", "0" if known.get("rank") == "0" else "all", "all")
    assert ScopeChoices(decode).settle(known) == expected


@given(st.text(max_size=60))
def test_any_query_gives_a_state_that_can_be_drawn(decode: Run, text: str) -> None:
    choices = ScopeChoices(decode)
    options = choices.options()
    for query in (text, "?kind=" + text, "?rank=" + text, "?step=" + text):
        for name, value in choices.settle(parse_query(query)).fields().items():
            assert value in {option.value for option in options[name]}


def test_a_query_is_its_fields_and_no_more_than_a_page_can_need() -> None:
    assert parse_query("?kind=a%26b&rank=0") == {"kind": "a&b", "rank": "0"}
    assert parse_query(None) == parse_query("") == parse_query("?") == {}
    assert parse_query("?a=" + "x" * 5000) == {}
    assert write_query({}) == ""


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=20), max_size=8))
def test_a_written_query_is_read_again(fields: dict[str, str]) -> None:
    assert parse_query(write_query(fields)) == fields


def test_an_address_names_the_run_unless_it_is_the_first() -> None:
    assert address("idle", 0, kind="sliding") == "/idle?kind=sliding"
    assert address("timeline", 1, span="0.1.2") == "/timeline?run=1&span=0.1.2"
    assert address("ops", 0) == "/ops"


@pytest.mark.parametrize(
    ("text", "index"),
    [("0", 0), ("3", 3), ("-1", 0), ("1e3", 0), ("", 0), ("9" * 40, 0), ("\N{ARABIC-INDIC DIGIT ONE}", 0)],
)
def test_a_run_is_a_number_or_the_first(text: str, index: int) -> None:
    assert run_index({"run": text}) == index


def test_an_empty_run_has_nothing_to_choose(empty_path: Path) -> None:
    empty = open_run(empty_path)
    assert ScopeChoices(empty).default == Scope("all", "all", "all")


def test_the_first_view_does_not_hang_on_less_than_the_clock_can_tell(tmp_path: Path) -> None:
    def first_kind(apart_ns: int, tick_ns: int | None) -> str:
        text = f"""
        r0 s0 l0 layer=0 sliding b0 w4 attention_compute 32000 35200
        r0 s0 l1 layer=1 global  b0 w4 attention_compute 40000 {43200 + apart_ns}
        """
        meta = {"clock": {"name": "globaltimer", "tick_ns": tick_ns}}
        folder = tmp_path / f"{apart_ns} {tick_ns}"
        return ScopeChoices(open_run(build_run_from_text(folder, text, blocks=1, meta=meta))).default.kind

    assert first_kind(63, 32) == "sliding"
    assert first_kind(64, 32) == "global"
    assert first_kind(1, None) == "global"
