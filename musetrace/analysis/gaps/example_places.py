"""Where some pieces of idle time lie: their times, the spans that wait, and those that they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.analysis.answer import tick_ns
from musetrace.analysis.certainty.clock_quality import combined_ns
from musetrace.analysis.gaps.idle_pieces import KindClasses, idle_pieces
from musetrace.analysis.gaps.longest_pieces import Piece
from musetrace.analysis.gaps.matched_waits import MatchedWaits
from musetrace.analysis.gaps.producers import NO_TIME, RANKS, Match
from musetrace.analysis.gaps.wait_jobs import WaitJob
from musetrace.analysis.spans.intervals import newly_covered
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans, spans_by_step
from musetrace.analysis.spans.step_axis import StepAxis

Ints = npt.NDArray[np.int64]
Row = dict[str, Any]

# What is known of an awaited job.
ENDED, TIED, UNDER_WAY = "ended", "tied", "under_way"


@dataclass
class ExamplePlaces:
    """Reads the spans of the launches that are asked about, and no others."""

    run: RunLike
    waits: MatchedWaits
    _classes: KindClasses = field(init=False)

    def __post_init__(self) -> None:
        """Read the job table."""
        self._classes = KindClasses.of(self.run)

    def of(self, pieces: Sequence[Piece]) -> list[Row]:
        """The columns of ``idle_examples`` that say where each piece lies."""
        found: dict[Piece, Row] = {}
        for step, ranks in self._needed(pieces):
            mine = [one for one in pieces if one.step == step and ranks in (None, one.rank)]
            launches = {step: [one.launch for one in mine]}
            for spans in spans_by_step(self.run, Selection(rank=ranks, step=step), Counted(), launches):
                found |= self._in_step(spans, mine)
        return [found[piece] for piece in pieces]

    def _needed(self, pieces: Sequence[Piece]) -> list[tuple[int, int | None]]:
        """Step and rank, None for all: only where a wait's scope says so another rank may have produced."""
        scopes = {job.wait: self._scopes(job) for job in self.waits.jobs}
        every = any(RANKS in scopes.get(piece.cause, ()) for piece in pieces)
        return list(dict.fromkeys((one.step, None if every else one.rank) for one in pieces))

    def _scopes(self, job: WaitJob) -> tuple[str, ...]:
        known = self.waits.scopes.get(job.wait)
        return job.scopes if known is None else (known,)

    def _all_seen(self, spans: Sequence[StepSpans], launch: int) -> bool:
        """Whether all ranks of the run were seen in a launch: else the last may be one that was not."""
        seen = sum(launch in one.launch_id for one in spans)
        return seen == len(self.run.ranks) and not self.run.losses.get("missing_ranks")

    def _in_step(self, spans: Sequence[StepSpans], pieces: Sequence[Piece]) -> dict[Piece, Row]:
        axis = StepAxis.of(spans, self.waits.clocks)
        by_rank = {one.rank: one for one in spans}
        jobs = {job.wait: job for job in self.waits.jobs}
        matches: dict[int, Match] = {}
        found = {}
        for piece in pieces:
            one = by_rank[piece.rank]
            row, begin = self._lies(one, piece)
            wait = _covering(one, piece, begin, begin + piece.length_ns)
            if wait is not None:
                row["span"] = span_id(self.run, one, wait)
                job = jobs.get(piece.cause)
                if job is not None:
                    if job.wait not in matches:
                        matches[job.wait] = self.waits.match(axis, job)
                    row |= self._producer(spans, one, axis, job, matches[job.wait], wait)
            found[piece] = row
        return found

    def _lies(self, one: StepSpans, piece: Piece) -> tuple[Row, int]:
        """When the piece begins, from the launch's begin and on the axis, and from the step's base."""
        launch = int(np.flatnonzero(one.launch_id == piece.launch)[0])
        pieces = idle_pieces(one, self.run.blocks, self._classes)
        mine = pieces.instance == piece.block * len(one.launch_id) + launch
        before = int(pieces.length_ns[mine][: piece.at].sum())
        first, wall = int(one.launch_begin[launch]), int(one.launch_end[launch] - one.launch_begin[launch])
        busy = (one.launch == launch) & (one.block == piece.block) & self._classes.busy[one.job]
        offset = _idle_time(one.begin[busy] - first, one.end[busy] - first, wall, before)
        at = self.waits.clocks[piece.rank].aligned(np.array([one.base_ns + first + offset]))
        where = {
            "layer": int(one.launch_layer[launch]),
            "kind": str(one.launch_kind[launch]),
            "begin_ns": offset,
            "at_ns": int(at[0]),
        }
        return where, first + offset

    def _producer(
        self,
        spans: Sequence[StepSpans],
        one: StepSpans,
        axis: StepAxis,
        job: WaitJob,
        match: Match,
        wait: int,
    ) -> Row:
        """The span that the wait of a rank waited for."""
        place = spans.index(one)
        earlier = sum(int((other.job == job.wait).sum()) for other in spans[:place])
        at = earlier + int((one.job[:wait] == job.wait).sum())
        if match.span[at] < 0:
            return {}
        late = axis.spans_of(job.wait).start + at
        number = int(match.span[at]) - axis.spans_of(job.producer).start
        other, index = _numbered(spans, job.producer, number)
        is_open = match.tied[at] or (
            self.waits.scopes[job.wait] == RANKS
            and not self._all_seen(spans, int(one.launch_id[one.launch[wait]]))
        )
        how = UNDER_WAY if match.end[at] == NO_TIME else TIED if is_open else ENDED
        row = {
            "producer": how,
            "producer_rank": other.rank,
            "producer_block": int(other.block[index]),
            "producer_span": span_id(self.run, other, index),
        }
        if how != UNDER_WAY:
            row["late_ns"] = int(match.end[at] - axis.begin[late])
            row["late_uncertainty_ns"] = combined_ns(tick_ns(self.run), int(match.error_ns[at]))
        return row


def _idle_time(begin: Ints, end: Ints, wall: int, before: int) -> int:
    """When so much idle time has passed and more follows; what is busy begins and ends then."""
    begin, end = np.clip(begin, 0, wall), np.clip(end, 0, wall)
    order = np.argsort(begin, kind="stable")
    begin, end = np.append(begin[order], wall), np.append(end[order], wall)
    busy_before = np.cumsum(newly_covered(begin, end)) - newly_covered(begin, end)
    idle_before = begin - np.minimum(busy_before, begin)
    at = int(np.flatnonzero(idle_before > before)[0])
    return before + int(busy_before[at])


def _covering(one: StepSpans, piece: Piece, begin: int, end: int) -> int | None:
    """The span of the cause's job that covers most of a piece; of equals the first."""
    launch = one.launch_id[one.launch] == piece.launch
    mine = np.flatnonzero(launch & (one.block == piece.block) & (one.job == piece.cause))
    if not len(mine):
        return None
    shared = np.minimum(one.end[mine], end) - np.maximum(one.begin[mine], begin)
    return int(mine[np.argmax(shared)])


def _numbered(spans: Sequence[StepSpans], job: int, number: int) -> tuple[StepSpans, int]:
    """The span with a number among those of a job, ranks one after the other."""
    for one in spans:
        mine = np.flatnonzero(one.job == job)
        if number < len(mine):
            return one, int(mine[number])
        number -= len(mine)
    raise AssertionError("a match names a span that was read")


def span_id(run: RunLike, spans: StepSpans, index: int) -> int:
    """The place of a span in ``run.spans(rank, step)``; of equal ones the first."""
    batch = run.spans(spans.rank, spans.step)
    wanted = {
        "begin": spans.begin[index],
        "dur": spans.end[index] - spans.begin[index],
        "job": spans.job[index],
        "launch": spans.launch_id[spans.launch[index]],
        "block": spans.block[index],
        "warp": spans.warp[index],
        "flag": 0,
    }
    same = np.ones(batch.num_rows, dtype=np.bool_)
    for name, value in wanted.items():
        same &= batch.column(name).to_numpy(zero_copy_only=False) == value
    return int(np.flatnonzero(same)[0])
