"""The job table of a GPU device with a draft: those of its launches, one after the other in a block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from musetrace.job_table import JobTable
from musetrace.record.kernel_table import KernelTable, combined_table

TARGET = "muse_hopper"
# In the order in which wait reports count their jobs.
_PARTS = {"target": TARGET, "draft": "muse_draft", "step": "muse_step"}


@dataclass(frozen=True)
class StepTable:
    """One table for every launch of a step.

    Attributes:
        table: all jobs; the draft's that the target has by the same name go by ``draft.`` and that name.
        first_slots: of a launch's own slots in a block's: of the target, the draft, and what is between them.
    """

    table: JobTable
    first_slots: tuple[int, int, int]


@cache
def step_table() -> StepTable:
    """Of the compiled module."""
    parts = [KernelTable(name, 0, JobTable.built_in(table)) for name, table in _PARTS.items()]
    combined = combined_table(parts)
    target, draft, step = (2 * kernel.first_pair for kernel in combined.kernels)
    jobs = tuple(replace(job, name=job.name.removeprefix("target.")) for job in combined.jobs)
    return StepTable(replace(combined, name="muse_gpu_step", jobs=jobs, kernels=()), (target, draft, step))


def table_of_report(report: dict[str, int]) -> JobTable:
    """The table that a wait report's site is a job of; the target's own where that has it."""
    target = JobTable.built_in(TARGET)
    return target if report.get("site", 0) < len(target.jobs) else step_table().table
