"""How the blocks of a launch come and go, and how the next launch takes over from them (PDL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, spread_fields, spread_of_counts, tick_ns
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import NO_VALUES, ValueCounts
from musetrace.analysis.spans.instances import extents
from musetrace.analysis.spans.rows import jobs_of_kinds
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans, kinds_of
from musetrace.analysis.timeline.overview import share_by_kind

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NONE = np.iinfo(np.int64).min
_OWN = ("all_in", "first_out")
_NEXT = ("next_in", "next_all_in", "lead")
_COUNTS = {"all_in": "n", "next_in": "next_n", "next_work": "work_n"}
_NO_NEXT = -1
_FIELDS = [
    ("kind", pa.string()),
    ("next_kind", pa.string()),
    ("n", pa.uint64()),
    *(one for name in _OWN for one in spread_fields(name)),
    ("next_n", pa.uint64()),
    *(one for name in _NEXT for one in spread_fields(name)),
    ("work_n", pa.uint64()),
    *spread_fields("next_work"),
    ("overlap_n", pa.uint64()),
    ("observed", pa.float64()),
]


def launches(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per kind of launch and kind of the launch that follows it in the step, in the order of a step.

    Times are from the launch's begin, over the ``n`` launches that left sound spans. A block comes with its
    first span and goes with the end of its last.

    * ``all_in``: its last block comes. ``first_out``: its first block goes. Between the two all its blocks
      that were stamped are at work.
    * ``next_in``: the step's next launch begins on the same rank (launched); ``next_all_in``: that one's last
      block comes (landed); ``next_work``: its first compute span begins, in the ``work_n`` of the ``next_n``
      pairs where it has one.
    * ``lead = first_out - next_in``: how long before a block of this launch was free the next one began.
      Positive with programmatic dependent launch (PDL), negative where the next launch waits for the end.
    * ``overlap_n`` of the pairs overlap by at least the clock's step; null where that is not known.

    ``next_kind`` is null for the last launch of a step, and where the next one was lost or left no stamps:
    then ``next_n`` is 0. Lengths of launches and gaps between them are what ``launch_times`` tells.
    ``observed`` is the share of the kind's launches and their blocks that was recorded, at least.

    Meaning: what a launch costs at its edges, and how much of that PDL hides. It lies where a kernel's first
    job is not stamped: blocks then seem to come late; where a compute span begins with a wait, work seems to
    begin early. Blocks without a sound span are not looked at. With ``layer_kind`` the next launches are
    those of any kind, so spans with a flag (metadata ``ignored``) are counted over all kinds.
    Source: the article, "the next layer launches at 79 us and lands at 84 us".

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return ask(run, LAUNCHES, Selection(layer_kind, rank, step))


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    computes = jobs_of_kinds(run.job_table, frozenset({"compute"}))
    kinds = {kind: number for number, kind in enumerate(kinds_of(run))}
    return [_state(one, _Edges.of(one, computes), kinds, tick_ns(run)) for one in spans]


def _state(spans: StepSpans, edges: _Edges, kinds: Mapping[str, int], tick: int | None) -> State:
    """One (rank, step), by the numbers of a launch's kind and of the next one's, or :data:`_NO_NEXT`."""
    state = State()
    number = np.array([kinds[kind] for kind in spans.launch_kind.tolist()], dtype=np.int64)
    at = np.flatnonzero(edges.last_in != _NONE)
    then = np.where(edges.follows, np.append(number[1:], _NO_NEXT), _NO_NEXT)
    begin = edges.begin
    pairs, first = np.unique(np.stack([number[at], then[at]]), axis=1, return_index=True)
    # Where each pair was met first: rows are in the order of a step.
    state.add(
        "place", *pairs, (min(spans.rank, 0x7FFF) << 48) + (spans.step << 16) + spans.launch_id[at[first]]
    )

    def put(name: str, at: Ints, values: Ints) -> None:
        state.add(name, number[at], then[at], values)
        state.add_launches(name, number[at], then[at], spans.launch_id[at])

    for name, which in (("all_in", edges.last_in), ("first_out", edges.first_out)):
        put(name, at, which[at] - begin[at])
    at = at[edges.follows[at]]
    after = at + 1
    put("next_in", at, begin[after] - begin[at])
    put("next_all_in", at, edges.last_in[after] - begin[at])
    put("lead", at, edges.first_out[at] - begin[after])
    works = edges.work[after] != _NONE
    put("next_work", at[works], (edges.work[after] - begin[at])[works])
    overlaps = edges.end[at] - begin[after] >= max(tick or 0, 1)
    state.add("overlap", number[at], then[at], sums=overlaps.astype(np.int64))
    return state


@dataclass(frozen=True)
class _Edges:
    """int64[launches] of one (rank, step), ns from the step's base: :data:`_NONE` where there is nothing."""

    begin: Ints
    end: Ints
    last_in: Ints
    first_out: Ints
    work: Ints
    follows: Bools  # is the next of the step's launches the one after it?

    @classmethod
    def of(cls, spans: StepSpans, computes: Bools) -> _Edges:
        """Of launches by the first and last span of each of their blocks."""
        count = len(spans.launch_id)
        blocks = int(spans.block.max(initial=0)) + 1
        key = spans.launch * blocks + spans.block
        key, first, last = extents(key, spans.begin, spans.end, count * blocks)
        last_in, first_out, work = (np.full(count, _NONE) for _ in range(3))
        if len(key):
            launch, starts = np.unique(key // blocks, return_index=True)
            last_in[launch] = np.maximum.reduceat(first, starts)
            first_out[launch] = np.minimum.reduceat(last, starts)
        is_work = computes[spans.job]
        launch, begin, _ = extents(spans.launch[is_work], spans.begin[is_work], spans.end[is_work], count)
        work[launch] = begin
        follows = np.append(np.diff(spans.launch_id) == 1, False)
        follows[:-1] &= last_in[1:] != _NONE
        return cls(spans.launch_begin, spans.launch_end, last_in, first_out, work, follows)


def _finish(run: RunLike, selection: Selection, state: State, counted: Counted) -> pa.Table:
    names, tick = kinds_of(run), tick_ns(run)
    places = {
        (kind, then): int(of_pair.keys[0][0])
        for kind, of_kind in state.sum_of("place", 3).groups()
        for then, of_pair in of_kind.groups()
    }
    values: dict[tuple[int, int], dict[str, ValueCounts]] = {
        pair: {} for pair in sorted(places, key=places.__getitem__)
    }
    for name in (*_OWN, *_NEXT, "next_work"):
        for kind, of_kind in state.sum_of(name, 3).groups():
            for then, of_pair in of_kind.groups():
                values[kind, then][name] = ValueCounts.of(of_pair)
    overlap = state.sum_of("overlap", 2).as_dict()
    shares = share_by_kind(run, selection, [names[kind] for kind, _ in values])
    rows = []
    for (kind, then), found in values.items():
        if selection.layer_kind not in (None, names[kind]):
            continue
        row: dict[str, object] = {
            "kind": names[kind],
            "next_kind": None if then == _NO_NEXT else names[then],
            "overlap_n": None if tick is None else overlap.get((kind, then), 0),
            "observed": shares[names[kind]],
        }
        for name in (*_OWN, *_NEXT, "next_work"):
            counts = found.get(name, NO_VALUES)
            row |= spread_of_counts(name, counts, state.square_of(name, kind, then), tick)
            row |= {_COUNTS[name]: counts.n} if name in _COUNTS else {}
        rows.append(row)
    return answer(run, _FIELDS, rows, counted)


LAUNCHES = Question("launches", 1, _accumulate, _finish, by_kind=False)
