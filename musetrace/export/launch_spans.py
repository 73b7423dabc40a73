"""The spans of matched launches, on the trace's clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
        steps = run.steps(rank)
        self._bases = dict(
            zip(steps.column("step").to_pylist(), steps.column("base_ns").to_pylist(), strict=True)
        )

    def spans(self, kernel: str) -> Iterator[TrackSpan]:
        """The spans of all launches of a kernel, launch after launch."""
        for launch, move_ns in self._launches:
            if launch.kernel == kernel:
                yield from self._of_launch(launch, self._bases[launch.step] + move_ns)

    def _of_launch(self, launch: MatchedLaunch, base_ns: int) -> Iterator[TrackSpan]:
        batch = self._run.spans(self._rank, launch.step)
        wanted = pc.equal(batch["launch"], launch.launch)
        if self._blocks is not None:
            wanted = pc.and_(wanted, pc.is_in(batch["block"], pa.array(sorted(self._blocks), pa.uint16())))
        batch = batch.filter(wanted)
        jobs = self._run.job_table.jobs
        sound = np.asarray(batch["flag"]) == Flag.OK
        sound &= np.asarray(batch["job"]) < len(jobs)
        self.left_out += int(len(sound) - np.count_nonzero(sound))
        batch = batch.filter(pa.array(sound))
        for row in _rows(batch):
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
