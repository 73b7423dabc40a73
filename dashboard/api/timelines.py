"""The runs of the page as timelines: what is read of a run once, and the answers that were given last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from musetrace.analysis.certainty.rank_clocks import alignment_error_ns
from musetrace.analysis.windows.flows import wait_scopes
from musetrace.analysis.windows.lane_store import MOST_NEAR, LaneMemory, Timeline
from musetrace.analysis.windows.pyramid import PyramidMemory
from musetrace.analysis.windows.rows import BLOCKS, SMS, Rows, block_rows, sm_rows, warp_rows
from musetrace.dashboard.api.run_pictures import RunPictures
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.freed_memory import give_back
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.shared_run import recorded_run
from musetrace.errors import AnalysisError

MOST_SPAN_BYTES = 1_200_000_000  # 100 M spans of lanes, less while views look at single steps
MOST_CELL_BYTES = 64 << 20
MOST_ANSWER_BYTES = 32 << 20
_WORTH_GIVING_BACK_BYTES = 64 << 20

Answer = TypeVar("Answer")


class RunTimeline:
    """A run, as it was opened last, and what its routes share."""

    def __init__(
        self, run: RecordedRun, name: str, ref: RunRef, memory: LaneMemory, cells: PyramidMemory
    ) -> None:
        """Read the run's steps."""
        self.run, self.name, self.ref = run, name, ref
        # Lanes are kept instead of the spans that they are made of.
        self.timeline = Timeline.of(recorded_run(run), memory)
        self.pictures = RunPictures(run, self.timeline, cells)
        self.spans = sum(self.timeline.spans_of.values())
        self._lock = threading.Lock()
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Answer]) -> Answer:
        """``make()``, made once."""
        with self._lock:
            if key in self._made:
                return self._made[key]  # type: ignore[no-any-return]
        made = make()
        with self._lock:
            return self._made.setdefault(key, made)  # type: ignore[no-any-return]

    def rows(self, kind: str, ranks: tuple[int, ...], block: tuple[int, int] | None) -> Rows:
        """The rows of a kind. Raises AnalysisError for what the run cannot show."""
        if kind == BLOCKS:
            return block_rows(self.run, ranks)
        if kind == SMS:
            return self.once((SMS, ranks), lambda: sm_rows(self.run, ranks))
        assert block is not None
        return self.once((kind, block), lambda: warp_rows(self.run, *block))

    def sms(self) -> tuple[int, ...] | None:
        """The SMs of the run; None where it does not tell them apart."""
        try:
            return self.rows(SMS, self.run.ranks, None).numbers
        except AnalysisError:
            return None

    def apart_ns(self) -> int | None:
        """What times of two ranks may be off against each other; None: they are not aligned."""
        return self.once("apart", lambda: alignment_error_ns(self.run))

    def scopes(self, step: int) -> Mapping[int, str]:
        """The scope of each wait: that of the whole run where this is quickly told, else of the step."""
        of_run = self.spans <= MOST_NEAR or self.pictures.overview() is not None
        told_by = None if of_run else step
        return self.once(("scopes", told_by), lambda: wait_scopes(self.timeline.run, told_by))


class Timelines:
    """The timelines of all runs, and the answers that were given last."""

    def __init__(self, runs: OpenRuns) -> None:
        """``runs`` of the page."""
        self._runs = runs
        self._memory = LaneMemory(MOST_SPAN_BYTES, lambda: runs.steps.bytes)
        self._turned_over = 0
        runs.steps.when_more.append(self._make_room)
        self._cells = PyramidMemory(MOST_CELL_BYTES)
        self._known: dict[int, RunTimeline] = {}
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()  # with their bytes
        self._bytes = 0

    def _make_room(self, more_bytes: int) -> None:
        """Of lanes, for a step that a view looks at; and give back what it and others have freed."""
        self._memory.make_room()
        self._turned_over += more_bytes
        if self._turned_over >= _WORTH_GIVING_BACK_BYTES:
            self._turned_over = 0
            give_back()

    @property
    def count(self) -> int:
        """How many runs there are."""
        return len(self._runs.names)

    def of(self, index: int) -> RunTimeline:
        """A run as it was opened last."""
        ref = self._runs.ref(index)
        with self._lock:
            known = self._known.get(index)
            if known is None or known.ref != ref:
                name = self._runs.names[index]
                run = self._runs.run(ref)
                known = self._known[index] = RunTimeline(run, name, ref, self._memory, self._cells)
            return known

    def kept(
        self,
        of: RunTimeline,
        key: Hashable,
        make: Callable[[], Answer],
        size: Callable[[Answer], int],
        *,
        keeps: Callable[[Answer], bool] = lambda _: True,
    ) -> Answer:
        """An answer about a run: one that was given lately, or a new one; ``size`` in bytes.

        ``keeps`` says whether an answer will do for the same question later.
        """
        whole = (of.ref, key)
        with self._lock:
            if whole in self._answers:
                self._answers.move_to_end(whole)
                return self._answers[whole][0]  # type: ignore[no-any-return]
        made = make()
        with self._lock:
            if whole not in self._answers and keeps(made):
                self._answers[whole] = made, size(made)
                self._bytes += size(made)
            while self._bytes > MOST_ANSWER_BYTES and len(self._answers) > 1:
                self._bytes -= self._answers.popitem(last=False)[1][1]
        return made
