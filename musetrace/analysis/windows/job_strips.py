"""How jobs are drawn on a timeline: in which strip of a row, and as which op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from musetrace.job_table import UNKNOWN_OP, JobTable

# The strips of a row, top down, and the kinds of jobs in each.
STRIPS = ("loads", "work", "comm", "waits")
LOADS, WORK, COMM, WAITS = range(len(STRIPS))
STRIP_OF_KIND: Mapping[str, int] = {
    "load": LOADS,
    "prefetch": LOADS,
    "compute": WORK,
    "send": COMM,
    "recv": COMM,
    "sync": COMM,
    "wait": WAITS,
}
# In a row of one strip: what is drawn where there is any of it, before what.
CLASSES_OF_ONE = 3
CLASS_OF_STRIP = (1, 0, 0, 2)  # work and comm, then loads, then waits

NO_OP = 255
OTHER_OPS = "other ops"
MOST_OPS = 255
_JOBS = 1 << 16
_OPS = 256

# By job id a place, and by place its class, its op and its strip; the number of classes.
Bytes = npt.NDArray[np.uint8]
Drawn = tuple[npt.NDArray[np.int16], Bytes, Bytes, Bytes, int]


@dataclass(frozen=True)
class JobStrips:
    """The ops of a job table, and by job id (65,536 of them) its strip and its op, u8.

    Ops are in job-table order, then ``unknown`` for the jobs that the table does not have. There are at most
    255; from the 254th on they are one, ``other ops``.
    """

    ops: tuple[str, ...]
    strip: npt.NDArray[np.uint8]
    op: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, table: JobTable) -> JobStrips:
        """Read a job table."""
        known = list(dict.fromkeys(job.op for job in table.jobs))
        ops = [op for op in known if op != UNKNOWN_OP]
        if len(ops) >= MOST_OPS:
            ops = [*ops[: MOST_OPS - 2], OTHER_OPS]
        ops.append(UNKNOWN_OP)
        place = {op: at for at, op in enumerate(ops)}
        others = place.get(OTHER_OPS, 0)
        strip = np.full(_JOBS, WORK, dtype=np.uint8)
        op = np.full(_JOBS, place[UNKNOWN_OP], dtype=np.uint8)
        for number, job in enumerate(table.jobs):
            strip[number] = STRIP_OF_KIND[job.kind]
            op[number] = place.get(job.op, others)
        return cls(tuple(ops), strip, op)

    @cached_property
    def by_strip(self) -> Drawn:
        """What the compiled loops take for rows of four strips: a place for each (strip, op) that occurs."""
        pair = self.strip.astype(np.int64) * _OPS + self.op
        occurs = np.bincount(pair) > 0
        place, pairs = (np.cumsum(occurs) - 1).astype(np.int16), np.flatnonzero(occurs)
        classes, ops = (pairs // _OPS).astype(np.uint8), (pairs % _OPS).astype(np.uint8)
        return place[pair], classes, ops, classes, len(STRIPS)

    @cached_property
    def by_class(self) -> Drawn:
        """The same for rows of one strip."""
        place, strips, ops, _, _ = self.by_strip
        return place, np.array(CLASS_OF_STRIP, dtype=np.uint8)[strips], ops, strips, CLASSES_OF_ONE

    def of_launches(self, strips: int) -> Drawn:
        """The same for covers of launches, in rows of so many strips: a place for every strip and op."""
        strip, op = (
            part.astype(np.uint8) for part in np.divmod(np.arange(len(STRIPS) * len(self.ops)), len(self.ops))
        )
        nobody = np.zeros(0, dtype=np.int16)
        if strips == 1:
            return nobody, np.array(CLASS_OF_STRIP, dtype=np.uint8)[strip], op, strip, CLASSES_OF_ONE
        return nobody, strip, op, strip, len(STRIPS)
