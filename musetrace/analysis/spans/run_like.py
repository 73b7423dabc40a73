"""What the analysis needs of a run. ``musetrace.store.Run`` is one; a test may bring its own."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from musetrace.job_table import JobTable


class RunLike(Protocol):
    """A run to ask questions of. All times are integers in ns."""

    @property
    def manifest(self) -> dict[str, Any]:
        """The run's conditions; the analysis reads ``clock.tick_ns``, and ``alignment`` in ``ranks``."""

    @property
    def job_table(self) -> JobTable:
        """The jobs of the kernel that was recorded."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that the run has data of."""

    @property
    def blocks(self) -> int:
        """Blocks of one rank."""

    @property
    def losses(self) -> dict[str, Any]:
        """What is missing; the analysis reads ``missing_ranks``."""

    def step_ids(self, rank: int) -> list[int]:
        """The steps of one rank, growing."""

    def steps(self, rank: int) -> pa.Table:
        """One row per step: ``step, base_ns, end_ns, host_begin_ns, host_end_ns`` and more."""

    def launches(self, rank: int) -> pa.Table:
        """One row per launch: ``step, launch, layer, kind, begin_ns, end_ns, blocks`` and more."""

    def spans(self, rank: int, step: int) -> pa.RecordBatch:
        """One step's spans: ``begin, dur, job, launch, block, flag`` and more; begin from the step's base."""
