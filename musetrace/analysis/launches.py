"""How the blocks of a launch come and go, and how the next launch takes over from them (PDL)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, spread, spread_fields, tick_ns
from musetrace.analysis.instances import extents
from musetrace.analysis.launch_counts import launch_key
from musetrace.analysis.rows import jobs_of_kinds
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import (
    Counted,
    LaunchColumns,
    Selection,
    StepSpans,
    check_scope,
    step_spans,
)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NONE = np.iinfo(np.int64).min
_OWN = ("all_in", "first_out")
_NEXT = ("next_in", "next_all_in", "lead")
_COUNTS = {"all_in": "n", "next_in": "next_n", "next_work": "work_n"}
_EMPTY = np.zeros(0, dtype=np.int64)
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

    Meaning: what a launch costs at its edges, and how much of that PDL hides. It lies where a kernel's first
    job is not stamped: blocks then seem to come late; where a compute span begins with a wait, work seems to
    begin early. Blocks without a sound span are not looked at. With ``layer_kind`` the next launches are
    those of any kind, so spans with a flag (metadata ``ignored``) are counted over all kinds.
    Source: the article, "the next layer launches at 79 us and lands at 84 us".

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    check_scope(run, Selection(layer_kind, rank, step))
    counted = Counted()
    tick = tick_ns(run)
    computes = jobs_of_kinds(run.job_table, frozenset({"compute"}))
    columns = {one: LaunchColumns.of(run.launches(one)) for one in run.ranks}
    pairs: dict[tuple[str, str | None], _Pair] = {}
    for spans in step_spans(run, Selection(None, rank, step), counted):
        of_rank = columns[spans.rank]
        kinds = of_rank.kind[of_rank.chosen(spans.step, None)]
        edges = _Edges.of(spans, computes)
        for name, at, then in edges.pairs(kinds, layer_kind):
            pairs.setdefault(name, _Pair()).add(edges, spans, at, then, tick)
    return answer(run, _FIELDS, [pair.row(name, tick) for name, pair in pairs.items()], counted)


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

    def pairs(
        self, kinds: npt.NDArray[Any], layer_kind: str | None
    ) -> Iterator[tuple[tuple[str, str | None], Ints, bool]]:
        """Launches with spans by (kind, kind of the next), and whether there is a next."""
        names: dict[tuple[str, str | None], list[int]] = {}
        for at in np.flatnonzero(self.last_in != _NONE).tolist():
            if layer_kind in (None, kinds[at]):
                name = (str(kinds[at]), str(kinds[at + 1]) if self.follows[at] else None)
                names.setdefault(name, []).append(at)
        for name, found in names.items():
            yield name, np.array(found, dtype=np.int64), name[1] is not None


@dataclass
class _Pair:
    """Values of one row as they come, with the launch of each."""

    values: dict[str, list[Ints]] = field(default_factory=dict)
    keys: dict[str, list[Ints]] = field(default_factory=dict)
    overlap_n: int = 0

    def add(self, edges: _Edges, spans: StepSpans, at: Ints, then: bool, tick: int | None) -> None:
        """Add launches of one (rank, step)."""
        key = launch_key(spans.step, spans.launch_id[at])
        begin = edges.begin[at]
        self._put("all_in", edges.last_in[at] - begin, key)
        self._put("first_out", edges.first_out[at] - begin, key)
        if not then:
            return
        following = at + 1
        self._put("next_in", edges.begin[following] - begin, key)
        self._put("next_all_in", edges.last_in[following] - begin, key)
        self._put("lead", edges.first_out[at] - edges.begin[following], key)
        works = edges.work[following] != _NONE
        self._put("next_work", (edges.work[following] - begin)[works], key[works])
        self.overlap_n += int((edges.end[at] - edges.begin[following] >= max(tick or 0, 1)).sum())

    def _put(self, name: str, values: Ints, keys: Ints) -> None:
        self.values.setdefault(name, []).append(values)
        self.keys.setdefault(name, []).append(keys)

    def row(self, name: tuple[str, str | None], tick: int | None) -> dict[str, object]:
        """The answer's row."""
        row: dict[str, object] = {"kind": name[0], "next_kind": name[1]}
        for of in (*_OWN, *_NEXT, "next_work"):
            values, keys = (np.concatenate([_EMPTY, *held.get(of, ())]) for held in (self.values, self.keys))
            row |= spread(of, values, np.unique(keys, return_counts=True)[1], tick)
            row |= {_COUNTS[of]: len(values)} if of in _COUNTS else {}
        return {**row, "overlap_n": None if tick is None else self.overlap_n}
