"""The spans of a kernel as tracks of a Chrome trace: complete events that lie in each other or apart.

A track is an SM (or a block) and a warp, or the block itself where it owns the jobs. Spans of a track that
cross each other, or are of two blocks at once, go to a further track, since viewers draw a track as a stack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from musetrace.export.chrome_trace import microseconds
from musetrace.job_table import JobTable
from musetrace.store.limits import NO_WARP

# torch.profiler gives its GPUs the places from 5,000,000 on.
_BEHIND_GPUS = 10_000_000


class TrackSpan(NamedTuple):
    """A span, its times in ns on the trace's clock, counted from the trace's base."""

    begin_ns: int
    end_ns: int
    job: int
    step: int
    launch: int
    block: int
    sm: int
    warp: int
    iteration: int | None
    payload: int | None


class Place(NamedTuple):
    """Where spans are drawn: ``lane`` is above 0 for those that would cross others."""

    place: int
    warp: int
    lane: int


@dataclass
class _Lane:
    """A track that is being filled; ``open`` are the ends of the spans around the place where it is."""

    open: list[int] = field(default_factory=list)
    block: int = -1

    def takes(self, span: TrackSpan) -> bool:
        """Whether the span lies apart from those before it, or in one of its own block."""
        while self.open and self.open[-1] <= span.begin_ns:
            self.open.pop()
        if self.open and (span.end_ns > self.open[-1] or span.block != self.block):
            return False
        self.open.append(span.end_ns)
        self.block = span.block
        return True


def in_lanes(spans: Iterable[TrackSpan], by: str) -> Iterator[tuple[Place, TrackSpan]]:
    """Each span and its track, by ``sm`` or ``block``; within a track outer spans come before inner ones."""
    lanes: dict[tuple[int, int], list[_Lane]] = {}
    for span in sorted(spans, key=lambda span: (span.begin_ns, -span.end_ns)):
        place = span.sm if by == "sm" else span.block
        having = lanes.setdefault((place, span.warp), [])
        number = next((at for at, lane in enumerate(having) if lane.takes(span)), len(having))
        if number == len(having):
            having.append(_Lane([span.end_ns], span.block))
        yield Place(place, span.warp, number), span


class KernelProcess:
    """The process of a Chrome trace that shows the inside of one kernel."""

    def __init__(self, name: str, pid: int, table: JobTable, by: str, labels: str) -> None:
        """``by`` is ``sm`` or ``block``; ``labels`` is what a viewer shows beside the name."""
        self._name, self._pid, self._by, self._labels, self._table = name, pid, by, labels, table
        self._heads = [
            f'"cat": {json.dumps(job.kind)}, "name": {json.dumps(job.name)}, "pid": {pid}'
            for job in table.jobs
        ]
        self._ops = [json.dumps(job.op) for job in table.jobs]

    def events(self, spans: Iterable[TrackSpan]) -> Iterator[str]:
        """JSON texts: names first, then the spans."""
        placed = list(in_lanes(spans, self._by))
        tids = {place: tid for tid, place in enumerate(sorted({place for place, _ in placed}))}
        roles = {place: self._table.jobs[span.job].role for place, span in placed}
        yield self._meta("process_name", 0, name=f"inside {self._name}")
        yield self._meta("process_labels", 0, labels=self._labels)
        yield self._meta("process_sort_index", 0, sort_index=_BEHIND_GPUS + self._pid)
        for place, tid in tids.items():
            yield self._meta("thread_name", tid, name=self._track_name(place, roles[place]))
            yield self._meta("thread_sort_index", tid, sort_index=tid)
        for place, span in placed:
            yield self._span(span, tids[place])

    def _track_name(self, place: Place, role: str) -> str:
        warp = "" if place.warp == NO_WARP else f" warp {place.warp}"
        further = f" +{place.lane}" if place.lane else ""
        return f"{'SM' if self._by == 'sm' else 'block'} {place.place}{warp} {role}{further}"

    def _meta(self, what: str, tid: int, **arguments: str | int) -> str:
        return json.dumps({"ph": "M", "name": what, "pid": self._pid, "tid": tid, "args": arguments})

    def _span(self, span: TrackSpan, tid: int) -> str:
        job = self._table.jobs[span.job]
        times = f'"ts": {microseconds(span.begin_ns)}'
        if job.instant:
            kind = '"ph": "i", "s": "t"'
        else:
            kind, times = '"ph": "X"', f'{times}, "dur": {microseconds(span.end_ns - span.begin_ns)}'
        more = "".join(
            f', "{name}": {value}'
            for name, value in (("iteration", span.iteration), ("payload", span.payload))
            if value is not None
        )
        place = f'"step": {span.step}, "launch": {span.launch}, "block": {span.block}, "sm": {span.sm}'
        arguments = f'{{"op": {self._ops[span.job]}, {place}{more}}}'
        return f'{{{kind}, {self._heads[span.job]}, "tid": {tid}, {times}, "args": {arguments}}}'
