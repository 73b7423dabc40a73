"""Addresses of what a view refers to: a moment in the timeline, a change to replay, a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from musetrace.analysis.spans.run_axis import origin_ns
from musetrace.dashboard.address import address, span_name
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.open_runs import RunRef
from musetrace.dashboard.scope import ALL, Scope

_LEAST_ROOM_NS = 1_000
_ROOM_ROWS = 6


@dataclass(frozen=True)
class Places:
    """Addresses of one run of the page."""

    run: int
    origin_ns: int
    ranks: tuple[int, ...]
    blocks: int

    @classmethod
    def of(cls, run: RecordedRun, ref: RunRef) -> Places:
        """Those of a run."""
        return cls(ref.index, origin_ns(run), tuple(run.ranks), run.blocks)

    def example(self, row: Mapping[str, Any]) -> str:
        """A row of ``musetrace.analysis.idle_examples`` in the middle of the timeline, its span chosen."""
        chosen = None if row["span"] is None else (row["rank"], row["step"], row["span"])
        return self._around(row, chosen)

    def producer(self, row: Mapping[str, Any]) -> str:
        """The same moment, with the span chosen that it waited for."""
        return self._around(row, (row["producer_rank"], row["step"], row["producer_span"]))

    def _around(self, row: Mapping[str, Any], span: tuple[int, int, int] | None) -> str:
        """Its blocks and that of its producer, and as much time before and after it as it takes."""
        begin = row["at_ns"] - self.origin_ns
        room = max(row["length_ns"], _LEAST_ROOM_NS)
        places = [(row["rank"], row["block"])]
        if row["producer_rank"] is not None:
            places.append((row["producer_rank"], row["producer_block"]))
        of_one = len({rank for rank, _ in places}) == 1
        rows = [block + (0 if of_one else self.ranks.index(rank) * self.blocks) for rank, block in places]
        last = self.blocks * (1 if of_one else len(self.ranks))
        fields: dict[str, str | int] = {
            "ranks": str(row["rank"]) if of_one else ALL,
            "rows": "blocks",
            "from": max(begin - room, 0),
            "to": begin + row["length_ns"] + room,
            "row_from": max(min(rows) - _ROOM_ROWS, 0),
            "row_to": min(max(rows) + _ROOM_ROWS + 1, last),
        }
        if span is not None:
            fields["span"] = span_name(*span)
        return address("timeline", self.run, **fields)

    def launch(self, rank: int, begin_ns: int, end_ns: int) -> str:
        """All blocks of a launch, whose times are on the clock of the run's first rank."""
        begin, room = begin_ns - self.origin_ns, (end_ns - begin_ns) // 50
        fields: dict[str, str | int] = {"ranks": rank, "rows": "blocks", "from": max(begin - room, 0)}
        return address("timeline", self.run, **fields, to=end_ns - self.origin_ns + room)

    def idle(self, scope: Scope, cause: str = "") -> str:
        """The examples of a cause, or all idle time."""
        return address("idle", self.run, **scope.fields(), **({"cause": cause} if cause else {}))

    def what_if(self, scope: Scope, change: str) -> str:
        """A change of the critical path: ``gemm2=-10%``, ``stop3=gone``."""
        return address("path", self.run, **scope.fields(), what=change)

    def stop(self, scope: Scope, stop: str) -> str:
        """Who is late at a stop."""
        return address("stops", self.run, kind=scope.kind, step=scope.step, stop=stop)

    def ops(self, scope: Scope) -> str:
        """When each op runs."""
        return address("ops", self.run, **scope.fields())

    def launches(self, scope: Scope) -> str:
        """How launches follow each other."""
        return address("launches", self.run, **scope.fields())
