"""Areas, searches, single spans and neighbours of a timeline, against the list of all its spans."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.analysis.windows import lane_store
from musetrace.analysis.windows import search as searches
from musetrace.analysis.windows.area import area
from musetrace.analysis.windows.places import Place, neighbour, span_at, span_of
from musetrace.analysis.windows.rows import block_rows
from musetrace.analysis.windows.search import BEFORE_ALL, Hit, Search, search
from musetrace.analysis.windows.window import View
from tests.unit import windows_oracle as oracle
from tests.unit.analysis_oracle import percentile
from tests.unit.fake_run import UNKNOWN_JOB, Launch, Span
from tests.unit.test_windows import COMPUTE, SEND, WAIT, run_of, timeline_of, views
from tests.unit.windows_oracle import Shown, TimelineRun

Asked = tuple[TimelineRun, View, list[Shown]]


@given(views(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_an_area_has_exact_lengths_by_op_and_kind(asked: Asked, is_large: bool) -> None:
    run, view, spans = asked
    with pytest.MonkeyPatch.context() as patch:
        if is_large:  # and too large to be kept
            patch.setattr(lane_store, "MOST_NEAR", -1)
            patch.setattr(lane_store, "BYTES_OF_A_SPAN", 1 << 40)
        found = area(timeline_of(run), view.rows, *view.window)
    mine = [x for x in spans if oracle.inside(x, view.window)]
    sound = [x for x in mine if x.flag == 0]
    assert found.flagged == len(mine) - len(sound)
    longest = max((x.dur for x in sound), default=0)
    assert found.edges_ns.tolist() == oracle.edges(longest)
    told = {(group.op, group.kind): group for group in found.groups}
    assert set(told) == {op_and_kind(run, x.job) for x in sound}
    assert list(told) == [name for name in dict.fromkeys(order(run)) if name in told]
    for name, group in told.items():
        lengths = sorted(x.dur for x in sound if op_and_kind(run, x.job) == name)
        assert (group.n, group.total_ns) == (len(lengths), sum(lengths))
        assert (group.min_ns, group.max_ns) == (lengths[0], lengths[-1])
        tenths = (group.p10_ns, group.p50_ns, group.p90_ns)
        assert tenths == tuple(percentile(lengths, percent) for percent in (10, 50, 90))
        within = (
            max(min(x.begin + x.dur, view.to_ns) - max(x.begin, view.from_ns), 0)
            for x in sound
            if op_and_kind(run, x.job) == name
        )
        assert group.inside_ns == sum(within)
        edges = oracle.edges(longest)
        counts = [0] * (len(edges) - 1)
        for length in lengths:
            counts[bisect_right(edges, length) - 1] += 1
        assert group.histogram.tolist() == counts


def op_and_kind(run: TimelineRun, job: int) -> tuple[str, str]:
    known = job < len(run.job_table.jobs)
    return (run.job_table.jobs[job].op if known else f"job#{job}"), run.job_table.kind_name(job)


def order(run: TimelineRun) -> list[tuple[str, str]]:
    """In the order of the job table, then unknown jobs."""
    return [op_and_kind(run, job) for job in (*range(len(run.job_table.jobs)), UNKNOWN_JOB)]


@given(
    views(),
    st.sampled_from(["", "a", "B_", "stop", "job#", "32771", "load"]),
    st.tuples(st.integers(0, 4), st.sampled_from([0, 3, 12, 1 << 40])),
    st.booleans(),
    st.sampled_from([1, 2, 5]),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_a_search_pages_through_all_that_fits(
    asked: Asked, text: str, lengths: tuple[int, int], longest_first: bool, page: int, is_large: bool
) -> None:
    run, view, _ = asked
    timeline, rows = timeline_of(run), block_rows(run, run.ranks)
    window = (view.from_ns, view.to_ns, 0, rows.count)
    spans = oracle.shown(run, "blocks", run.ranks, rows.numbers)

    def fits(x: Shown) -> bool:
        names = (op_and_kind(run, x.job)[0], run.job_table.job_name(x.job))
        named = any(text.lower() in name for name in names)
        return x.flag == 0 and named and lengths[0] <= x.dur <= lengths[1] and oracle.inside(x, window)

    wanted = Search(text, *lengths, longest_first)
    key = {
        True: lambda x: (-x.dur, x.begin, x.rank, x.step, x.id),
        False: lambda x: (x.begin, x.rank, x.step, x.id),
    }
    expected = sorted(filter(fits, spans), key=key[longest_first])
    told, after = list[tuple[int, ...]](), BEFORE_ALL
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches, "MOST_HITS", page)
        if is_large:  # and too large to be kept
            patch.setattr(lane_store, "MOST_NEAR", -1)
            patch.setattr(lane_store, "BYTES_OF_A_SPAN", 1 << 40)
        while True:
            found = search(timeline, rows, window, wanted, after)
            assert found.total == len(expected)
            assert found.rest == len(expected) - len(told)
            told += [(x.at.rank, x.at.step, x.at.id, x.block, x.warp, x.job, x.dur_ns) for x in found.hits]
            assert len(found.hits) == min(page, found.rest)
            if not found.hits:
                break
            after = found.hits[-1].at
    assert told == [(x.rank, x.step, x.id, x.block, x.warp, x.job, x.dur) for x in expected]


@given(views(), st.integers(0, 30), st.sampled_from([0, 0, 3, 40]), st.sampled_from([None, 0, 1, 2, 3]))
@settings(max_examples=100, deadline=None)
def test_the_span_under_a_point(asked: Asked, ahead: int, slack: int, strip: int | None) -> None:
    run, view, spans = asked
    if view.row_from == view.row_to:
        return
    row, time = view.row_from, view.from_ns + ahead
    found = span_at(timeline_of(run), view.rows, row, strip, time, slack)
    layer = {0: 1, 1: 0, 2: 0, 3: 2}

    def away(x: Shown) -> int:
        return min(abs(moment - time) for moment in (range(x.begin, x.begin + x.dur) if x.dur else [x.begin]))

    mine = [
        x for x in spans if x.row == row and strip in (None, oracle.strip_of(run, x.job)) and away(x) <= slack
    ]
    if not mine:
        assert found is None
        return
    of_layer = {x: layer[oracle.strip_of(run, x.job)] if strip is None else 0 for x in mine}
    best = min((of_layer[x], away(x), -x.begin, x.dur) for x in mine)
    assert found is not None
    told = next(x for x in mine if (x.rank, x.step, x.id) == (found.rank, found.step, found.id))
    assert (of_layer[told], away(told), -told.begin, told.dur) == best
    assert (found.row, found.begin_ns, found.dur_ns, found.job) == (row, told.begin, told.dur, told.job)
    assert found.strip == oracle.strip_of(run, told.job)


@given(views(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_neighbours_go_along_a_row_through_all_steps(asked: Asked, one_strip: bool) -> None:
    run, view, spans = asked
    timeline = timeline_of(run)
    for x in spans[:12]:
        place = span_of(timeline, view.rows, x.rank, x.step, x.id)
        assert place is not None
        assert (place.row, place.begin_ns, place.job) == (x.row, x.begin, x.job)
        strip = oracle.strip_of(run, x.job)
        mine = [y for y in spans if y.row == x.row and (one_strip or oracle.strip_of(run, y.job) == strip)]
        # Steps follow each other; within one the begin counts, then the number.
        mine.sort(key=lambda y: (y.step, y.begin, y.id))
        at = mine.index(x)
        for direction, expected in ((1, mine[at + 1 : at + 2]), (-1, mine[:at][-1:])):
            found = neighbour(timeline, view.rows, x.rank, x.step, x.id, direction, one_strip=one_strip)
            assert name_of(found) == [(y.rank, y.step, y.id) for y in expected]


def name_of(place: Place | None) -> list[tuple[int, int, int]]:
    return [] if place is None else [(place.rank, place.step, place.id)]


def test_what_is_not_there_has_no_place() -> None:
    run = run_of(Span(0, 0, 0, 0, COMPUTE, 1, 2))
    timeline, rows = timeline_of(run), block_rows(run, (0,))
    for name in ((0, 0, 1), (0, 9, 0), (7, 0, 0), (0, 0, -1)):
        assert span_of(timeline, rows, *name) is None
        assert neighbour(timeline, rows, *name, 1) is None


def test_work_is_found_before_what_loads_and_waits_under_it() -> None:
    spans = [
        Span(0, 0, 0, 0, job, begin, 50) for job, begin in ((WAIT, 20), (0, 15), (COMPUTE, 5), (SEND, 10))
    ]
    run = run_of(*spans)
    timeline, rows = timeline_of(run), block_rows(run, (0,))
    found: Any = span_at(timeline, rows, 0, None, 30)
    assert found.job == SEND  # began last of those that work
    assert [span_at(timeline, rows, 0, strip, 30).job for strip in range(4)] == [0, COMPUTE, SEND, WAIT]  # type: ignore[union-attr]
    assert span_at(timeline, rows, 0, 1, 55) is None


class SameTimes(TimelineRun):
    """All ranks begin their step at one time."""

    def base_ns(self, rank: int, step: int) -> int:
        return super().base_ns(0, step)


def test_hits_of_one_time_are_told_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = [Launch(rank, 0, 0, 0, "sliding", 0, 20, 1) for rank in range(3)]
    spans = [Span(rank, 0, 0, 0, COMPUTE, 5, 2) for rank in range(3) for _ in range(2)]
    run = SameTimes(launches, spans, 1, (0, 1, 2))
    timeline, rows = timeline_of(run), block_rows(run, run.ranks)
    monkeypatch.setattr(searches, "MOST_HITS", 1)
    told, after = list[tuple[int, int]](), BEFORE_ALL
    for _ in range(7):
        for hit in search(timeline, rows, (0, 20, 0, 3), Search(), after).hits:
            after = hit.at
            told.append((after.rank, after.id))
    assert told == [(rank, span) for rank in range(3) for span in range(2)]


def test_hits_compare_in_the_order_in_which_they_are_told() -> None:
    assert (
        BEFORE_ALL
        < Hit(-(1 << 40), 0, 0, 0, 0)
        < Hit(-5, 9, 0, 0, 0)
        < Hit(0, 1, 0, 0, 0)
        < Hit(0, 1, 0, 1, 0)
    )
