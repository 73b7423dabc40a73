"""The spans of matched launches, on the trace's clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from musetrace.export.clock_offset import ClockOffset
from musetrace.export.launch_match import MatchedLaunch
from musetrace.export.tracks import TrackSpan
from musetrace.store.decode import Flag
from musetrace.store.run import Run


class SpanReader:
    """Reads one kernel after the other; ``left_out`` counts the spans that lack a time or a known job."""

    def __init__(
        self,
        run: Run,
        rank: int,
        base_ns: int,
        offset: ClockOffset,
        matched: Sequence[MatchedLaunch],
        blocks: Collection[int] | None,
    ) -> None:
        """``offset`` has an entry for each launch of ``matched`` that is stamped, in order."""
        self._run, self._rank, self._blocks = run, rank, blocks
        self.left_out = 0
        stamped = [launch for launch in matched if launch.stamped]
        moves = (offset.offset_ns + offset.shift_ns - base_ns).tolist()
        self._launches = list(zip(stamped, moves, strict=True))
        self._read: tuple[int, pa.RecordBatch] | None = None
        steps = run.steps(rank)
        self._bases = dict(
            zip(steps.column("step").to_pylist(), steps.column("base_ns").to_pylist(), strict=True)
        )

    def spans(self, kernel: str) -> Iterator[TrackSpan]:
        """The spans of all launches of a kernel, launch after launch."""
        for launch, move_ns in self._launches:
            if launch.kernel == kernel:
                yield from self._of_launch(launch, self._bases[launch.step] + move_ns)

    def _of_step(self, step: int) -> pa.RecordBatch:
        # Launches come step after step, and a step may have hundreds of them.
        if self._read is None or self._read[0] != step:
            self._read = step, self._run.spans(self._rank, step)
        return self._read[1]

    def _of_launch(self, launch: MatchedLaunch, base_ns: int) -> Iterator[TrackSpan]:
        batch = self._of_step(launch.step)
        jobs = self._run.job_table.jobs
        wanted = np.asarray(batch["launch"]) == launch.launch
        if self._blocks is not None:
            wanted &= np.isin(np.asarray(batch["block"]), list(self._blocks))
        sound = wanted & (np.asarray(batch["flag"]) == Flag.OK) & (np.asarray(batch["job"]) < len(jobs))
        self.left_out += int(np.count_nonzero(wanted) - np.count_nonzero(sound))
        for row in _rows(batch.filter(pa.array(sound))):
            begin_ns = base_ns + row["begin"]
            yield TrackSpan(
                begin_ns=begin_ns,
                end_ns=begin_ns + row["dur"],
                job=row["job"],
                step=launch.step,
                launch=launch.launch,
                block=row["block"],
                sm=row["sm"],
                warp=row["warp"],
                iteration=row.get("iteration") if jobs[row["job"]].iterations > 1 else None,
                payload=row.get("payload") if row.get("has_payload") else None,
            )


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, int]]:
    columns = {name: batch[name].to_pylist() for name in batch.schema.names}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))
