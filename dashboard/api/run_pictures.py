"""The pictures that are made of all spans of a run: kept in its index, made here where they are lacking."""

from __future__ import annotations

import contextlib
import threading

from musetrace.analysis.windows.lane_store import Timeline
from musetrace.analysis.windows.overview import Overview, kept_overview, overview_of_spans
from musetrace.analysis.windows.pyramid import Pyramid, PyramidMemory, drop_pyramid, kept_pyramid
from musetrace.analysis.windows.pyramid_cells import keep_pyramid
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import sentence_of
from musetrace.dashboard.shared_run import keep_sums


class RunPictures:
    """The pyramid of a run's steps and the overview of its launches. Safe to use from threads."""

    def __init__(self, run: RecordedRun, timeline: Timeline, memory: PyramidMemory) -> None:
        """Nothing is read before it is asked for. ``timeline`` is of the run itself, which is not shared."""
        self._run, self._timeline, self._memory = run, timeline, memory
        self._lock = threading.Lock()
        self._pyramid: Pyramid | None = None
        self._overview: Overview | None = None
        self._has_looked = False
        self._making: threading.Thread | None = None
        self.is_making_pyramid = False
        self.trouble = ""  # why the overview cannot be made

    def pyramid(self) -> Pyramid | None:
        """The pyramid; None while it is being made, which this begins, and where it cannot be kept."""
        with self._lock:
            self._look()
            return self._pyramid

    def overview(self) -> Overview | None:
        """The overview; None while it is being made, which this begins."""
        with self._lock:
            self._look()
            return self._overview

    def forget_pyramid(self) -> None:
        """Its file is damaged: make it anew."""
        with self._lock:
            if self._pyramid is not None:
                self._pyramid, self._has_looked = None, False
                with contextlib.suppress(OSError):  # then there is none
                    drop_pyramid(self._timeline.run)

    def _look(self) -> None:
        """Read what is kept, once, and begin to make what is not."""
        if self._has_looked or (self._making is not None and self._making.is_alive()):
            return
        self._has_looked = True
        timeline = self._timeline
        self._pyramid = self._pyramid or kept_pyramid(timeline, self._memory)
        self._overview = self._overview or kept_overview(timeline.run, timeline.axis)
        if self._pyramid is None or self._overview is None:
            self.is_making_pyramid = self._pyramid is None
            self._making = threading.Thread(target=self._make, daemon=True)
            self._making.start()

    def _make(self) -> None:
        """The pyramid comes first: it takes seconds, and the overview may take a minute.

        A run that is being recorded has no pyramid: it is another run in a moment.
        """
        run, axis = self._timeline.run, self._timeline.axis
        try:
            if self._pyramid is None and not getattr(run, "is_being_recorded", False):
                keep_pyramid(self._timeline)
                pyramid = kept_pyramid(self._timeline, self._memory)
                with self._lock:
                    self._pyramid = pyramid
            self.is_making_pyramid = False
            if self._overview is None:
                keep_sums(self._run)
                overview = kept_overview(run, axis) or overview_of_spans(run, axis)
                with self._lock:
                    self._overview = overview
        except Exception as error:
            self.trouble = sentence_of(error)
        finally:
            self.is_making_pyramid = False
