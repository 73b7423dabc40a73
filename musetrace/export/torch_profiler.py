"""The spans of a run laid over a trace of torch.profiler: the one long bar of a kernel opened up.

    with torch.profiler.profile() as profiler:
        ...                                     # exactly the launches that are recorded
    profiler.export_chrome_trace("trace.json")
    overlay = lay_over("run", "trace.json", "opened.json")
    print(*overlay.sentences(), sep="\\n")

``opened.json`` is the trace with a process "inside KERNEL" for each recorded kernel; open it in Perfetto or
in chrome://tracing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import musetrace
from musetrace.errors import AnalysisError, UsageError
from musetrace.export.chrome_trace import ChromeTrace
from musetrace.export.clock_offset import ClockOffset, measure_offset
from musetrace.export.launch_match import MatchedLaunch, match_launches
from musetrace.export.launch_spans import SpanReader
from musetrace.export.tracks import KernelProcess
from musetrace.store.run import Run

TRACKS = ("sm", "block")


@dataclass(frozen=True)
class Overlay:
    """What was written to ``path``: ``events`` of ``kernels``; ``left_out`` spans are not sound."""

    path: Path
    kernels: tuple[str, ...]
    offset: ClockOffset
    events: int
    left_out: int

    def sentences(self) -> list[str]:
        """What was measured and written, in words."""
        odd = f"; {self.left_out:,} spans left out: without a begin, an end or a job" if self.left_out else ""
        names = ", ".join(self.kernels)
        return [*self.offset.sentences(), f"{self.events:,} events inside {names} in {self.path}{odd}"]


def lay_over(
    run: Run | str | os.PathLike[str],
    trace: str | os.PathLike[str],
    opened: str | os.PathLike[str],
    *,
    names: Mapping[str, str] | None = None,
    rank: int | None = None,
    device: int | None = None,
    by: str = "sm",
    blocks: Collection[int] | None = None,
) -> Overlay:
    """Write a trace again, with the spans of a run in it. The offset between the clocks is measured.

    Args:
        run: recorded while the trace was.
        trace: what ``export_chrome_trace`` of torch.profiler wrote, ``.json`` or ``.json.gz``.
        opened: the file to write; ``.gz`` compresses it. An existing one is replaced.
        names: the function of each recorded kernel, where it is not called like it: {"gemm": "gemm_kernel"}.
        rank: of a run with several.
        device: the GPU of a trace with several, as the trace numbers them.
        by: a track for each ``sm`` and warp, or for each ``block`` and warp.
        blocks: those to show; all of them by default.

    Raises:
        AnalysisError: the launches of the run are not the kernels of the trace.
        TraceFileError: the run or the trace cannot be read, or ``opened`` not be written.
        UsageError: the options make no sense.
    """
    source, target = Path(trace), Path(opened)
    if by not in TRACKS:
        raise UsageError(f"there are no tracks by {by!r}; choose sm or block")
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(f"{target} is the trace itself: name another file to write")
    run = run if isinstance(run, Run) else musetrace.open(run)
    rank = _rank(run, rank)
    traced = ChromeTrace(source)
    matched = match_launches(run, rank, traced.kernels(), names or {}, device)
    offset = _offset(matched)
    kernels = tuple(dict.fromkeys(launch.kernel for launch in matched))
    reader = SpanReader(run, rank, traced.base_ns, offset, matched, blocks)
    label = "; ".join(offset.sentences()[:2])
    first_pid = traced.free_pid()

    def events() -> Iterator[str]:
        for pid, kernel in enumerate(kernels, start=first_pid):
            yield from KernelProcess(kernel, pid, run.job_table, by, label).events(reader.spans(kernel))

    return Overlay(target, kernels, offset, traced.write_with(events(), target), reader.left_out)


def _rank(run: Run, rank: int | None) -> int:
    if rank is None and len(run.ranks) != 1:
        raise UsageError(
            f"{run.path} has ranks {', '.join(map(str, run.ranks))}: say which one the trace is of"
        )
    return run.ranks[0] if rank is None else rank


def _offset(matched: list[MatchedLaunch]) -> ClockOffset:
    stamped = [launch for launch in matched if launch.stamped]
    if not stamped:
        raise AnalysisError("no launch of the run left a stamp: there is nothing to lay over")
    times = np.array([launch.times for launch in stamped], dtype=np.int64)
    return measure_offset(*times.T)
