"""The job tables of other people's kernels: read from what their authors have, and put together for a run."""

from __future__ import annotations

import ctypes
import json
from _ctypes import CFuncPtr
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from musetrace.errors import RecordError
from musetrace.job_bytes import JobBytes, LaunchBytes
from musetrace.job_table import Job, JobTable, KernelShape
from musetrace.store import limits
from musetrace.store.payloads import parse_job_table

_SHOWN_CHARS = 60


@dataclass(frozen=True)
class KernelTable:
    """A kernel of a run: its name, the blocks of its grid, and the table that it was built with."""

    name: str
    blocks: int
    table: JobTable


def job_table_of(given: object) -> JobTable:
    """The job table that a user has: a JobTable, its JSON as text or dict, or the export of a library.

    Raises RecordError for anything else, and for a table that is not sound.
    """
    if isinstance(given, JobTable):
        return _sound(given)
    data = _json_of(given)
    try:
        return _sound(JobTable.from_json(data))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RecordError(f"the job table given to attach() lacks something: {error!r}") from None


def _json_of(given: object) -> Any:
    if isinstance(given, CFuncPtr):
        given.restype, given.argtypes = ctypes.c_char_p, []
        given = given()
    if isinstance(given, Mapping):
        return given
    try:
        if isinstance(given, (str, bytes)):
            return json.loads(given)
    except ValueError:
        pass
    raise RecordError(
        "attach() takes a JobTable, its JSON, or the export of a library by MUSETRACE_EXPORT_JOB_TABLE, not "
        f"{repr(given)[:_SHOWN_CHARS]}"
    )


def _sound(table: JobTable) -> JobTable:
    if table.slots % 2 or not 2 <= table.slots <= limits.MAX_SLOTS:
        raise RecordError(
            f"job table {table.name} has {table.slots} slots; a block has 2 to {limits.MAX_SLOTS}, in pairs"
        )
    if table.kernels or parse_job_table(table.to_json(), table.slots) is None:
        raise RecordError(f"job table {table.name} is not sound: make it by JobTable.declare or the header")
    return table


def combined_table(kernels: Sequence[KernelTable]) -> JobTable:
    """The table of a run of some kernels: theirs one after the other, each job once for each kernel.

    A job whose name another kernel has too goes by ``kernel.job``; ops stay as they are, since they are told
    apart by the kernel. Raises RecordError when the store's numbers do not suffice.
    """
    tables = [kernel.table for kernel in kernels]
    pairs = sum(table.slots for table in tables) // 2
    if pairs > limits.MAX_SLOTS // 2:
        raise RecordError(
            f"the kernels have {2 * pairs} slots together; a run holds {limits.MAX_SLOTS}: record fewer"
        )
    first_pairs = [0, *accumulate(table.slots // 2 for table in tables)]
    first_jobs = [0, *accumulate(len(table.jobs) for table in tables)]
    with_lists = any(table.iteration_of_pair or table.payload_of_pair for table in tables)
    return JobTable(
        name=", ".join(dict.fromkeys(table.name for table in tables))[: limits.MAX_NAME_CHARS],
        warps_per_block=max(table.warps_per_block for table in tables),
        slots=2 * pairs,
        jobs=tuple(_jobs(kernels, first_jobs)),
        job_of_pair=tuple(
            job + first if job >= 0 else -1
            for table, first in zip(tables, first_jobs, strict=False)
            for job in table.job_of_pair
        ),
        warp_of_pair=tuple(warp for table in tables for warp in table.warp_of_pair),
        iteration_of_pair=_of_pairs([table.iteration_of_pair for table in tables], tables, 0, with_lists),
        payload_of_pair=_of_pairs([table.payload_of_pair for table in tables], tables, False, with_lists),
        kernels=tuple(
            KernelShape(kernel.name, kernel.blocks, kernel.table.slots, kernel.table.warps_per_block, first)
            for kernel, first in zip(kernels, first_pairs, strict=False)
        ),
    )


def bytes_of_kernels(table: JobTable) -> list[LaunchBytes]:
    """What the jobs of each kernel of a combined table move, under the names that they have there."""
    found = []
    for kernel in table.kernels:
        numbers = sorted(set(table.of_kernel(kernel.name).job_of_pair) - {-1})
        jobs = [table.jobs[number] for number in numbers]
        moved = {job.name: JobBytes.exact(job.bytes) for job in jobs if job.bytes is not None}
        if moved:
            found.append(LaunchBytes(kernel.name, None, moved))
    return found


def _jobs(kernels: Sequence[KernelTable], first_jobs: Sequence[int]) -> Iterable[Job]:
    """The jobs of all kernels, with names that tell them apart and ids of the whole table."""
    having = Counter(name for kernel in kernels for name in {job.name for job in kernel.table.jobs})
    for kernel, first in zip(kernels, first_jobs, strict=False):
        for job in kernel.table.jobs:
            name = f"{kernel.name}.{job.name}" if having[job.name] > 1 else job.name
            awaits = None if job.awaits is None else job.awaits + first
            yield replace(job, name=name[: limits.MAX_NAME_CHARS], awaits=awaits)


def _of_pairs(
    lists: Sequence[tuple[Any, ...]], tables: Sequence[JobTable], missing: Any, wanted: bool
) -> tuple[Any, ...]:
    """A list of all pairs from those of the tables; tables without one have ``missing`` everywhere."""
    if not wanted:
        return ()
    return tuple(
        value
        for told, table in zip(lists, tables, strict=True)
        for value in (told or (missing,) * (table.slots // 2))
    )
