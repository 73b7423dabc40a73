"""Steps as lanes, read once and kept while there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np

from musetrace.analysis.spans.byte_memory import ByteMemory
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.windows.job_strips import JobStrips
from musetrace.analysis.windows.lanes import StepLanes, step_lanes
from musetrace.analysis.windows.rows import Rows, block_rows

MOST_NEAR = 6_000_000  # spans of which a question is asked at once; more are far out

BYTES_OF_A_SPAN = 12  # in lanes

_THREADS = 2


class LaneMemory(ByteMemory[StepLanes]):
    """The lanes of some runs; those that were asked for longest ago go first. Safe to use from threads."""

    def __init__(self, most_bytes: int, elsewhere: Callable[[], int] = lambda: 0) -> None:
        """Keep up to so many bytes, of which ``elsewhere`` tells what is taken, and always what is in use."""
        super().__init__(most_bytes, _THREADS, elsewhere)

    def lanes(self, timeline: Timeline, rows: Rows, wanted: Iterable[tuple[int, int]]) -> list[StepLanes]:
        """The lanes of some (rank, step), in order; what is missing is read, once however many ask."""
        of_rows = (timeline.key, rows.kind, rows.numbers, rows.block)
        return self.all_of(
            [
                ((*of_rows, *one), partial(step_lanes, timeline.run, timeline.axis, rows, *one))
                for one in wanted
            ]
        )


@dataclass(frozen=True, eq=False)
class Timeline:
    """A run as a timeline: its axis, how its jobs are drawn, and where lanes are kept.

    ``spans_of`` is how many spans each (rank, step) has.
    """

    run: RunLike
    axis: RunAxis
    strips: JobStrips
    memory: LaneMemory
    spans_of: dict[tuple[int, int], int]
    key: int = field(default_factory=count().__next__)  # no other has it

    @classmethod
    def of(cls, run: RunLike, memory: LaneMemory) -> Timeline:
        """Read what there is of steps."""
        counts: dict[tuple[int, int], int] = {}
        for rank in run.ranks:
            table = run.steps(rank)
            spans = table["spans"].to_pylist() if "spans" in table.column_names else None
            for at, step in enumerate(table["step"].to_pylist()):
                counts[rank, step] = run.spans(rank, step).num_rows if spans is None else spans[at]
        return cls(run, RunAxis.of(run), JobStrips.of(run.job_table), memory, counts)

    def all_blocks(self, ranks: Sequence[int] | None = None) -> Rows:
        """A row for each block of some ranks, or of all."""
        return block_rows(self.run, self.run.ranks if ranks is None else ranks)

    def steps_inside(self, ranks: Iterable[int], from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """The (rank, step) of which some lies in ``[from_ns, to_ns)``, by rank and time."""
        return [(rank, step) for rank in ranks for step in self.axis.steps_inside(rank, from_ns, to_ns)]

    def lanes(self, rows: Rows, wanted: Iterable[tuple[int, int]]) -> list[StepLanes]:
        """The lanes of some (rank, step)."""
        return self.memory.lanes(self, rows, wanted)

    def expected_spans(self, ranks: Iterable[int], from_ns: int, to_ns: int) -> int:
        """About how many spans lie in ``[from_ns, to_ns)``: those of its steps by their share that does."""
        found = 0.0
        for rank in ranks:
            steps = self.axis.ranks[rank]
            inside = np.minimum(steps.to_ns, to_ns) - np.maximum(steps.from_ns, from_ns)
            share = np.clip(inside / np.maximum(steps.to_ns - steps.from_ns, 1), 0.0, 1.0)
            some = inside > 0
            for step, part in zip(steps.step[some].tolist(), share[some].tolist(), strict=True):
                found += part * self.spans_of[rank, step]
        return int(found)

    def are_kept(self, ranks: Iterable[int], from_ns: int, to_ns: int) -> bool:
        """Whether the lanes of a window are kept once they are read: they are few, or all of the run fit."""
        return self.is_near(ranks, from_ns, to_ns) or self.memory.holds(
            BYTES_OF_A_SPAN * sum(self.spans_of.values())
        )

    def is_near(self, ranks: Iterable[int], from_ns: int, to_ns: int) -> bool:
        """Whether so few spans lie there that their steps are read, and kept."""
        return self.expected_spans(ranks, from_ns, to_ns) <= MOST_NEAR
