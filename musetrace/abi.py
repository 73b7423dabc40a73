"""Python's view of the stamp ABI: job tables and the layout of a stamp region.

Everything comes from the compiled module (``csrc/include/musetrace/abi``) when a run is recorded; a job table
also travels in the run as JSON, so that a reader decodes a run of any build.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

JOB_KINDS = ("load", "compute", "wait", "send", "recv", "sync", "prefetch")
UNKNOWN_OP = "unknown"


@dataclass(frozen=True)
class Job:
    """One job of a table.

    ``awaits`` is the id of the job whose end a wait waits for, else None. ``warps`` is the inclusive range of
    warps that do the job, ``stamped_by`` those of them that stamp it.
    """

    name: str
    op: str
    kind: str
    role: str
    warps: tuple[int, int]
    stamped_by: tuple[int, ...]
    awaits: int | None


@dataclass(frozen=True)
class JobTable:
    """The jobs of a kernel and where their stamps stand.

    Slot ``2 * pair`` of a block is a begin and ``2 * pair + 1`` the end of the job instance
    ``(job_of_pair[pair], warp_of_pair[pair])``; -1 marks a pair that no job uses.
    """

    name: str
    warps_per_block: int
    slots: int
    jobs: tuple[Job, ...]
    job_of_pair: tuple[int, ...]
    warp_of_pair: tuple[int, ...]

    @classmethod
    def built_in(cls, name: str = "muse_layer") -> JobTable:
        """A job table of the compiled module."""
        from musetrace import _core

        return cls.from_json(_core.abi.job_tables[name])

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JobTable:
        """Inverse of :meth:`to_json`. Raises KeyError, TypeError or ValueError on anything else."""
        jobs = tuple(
            Job(
                name=str(job["name"]),
                op=str(job["op"]),
                kind=str(job["kind"]),
                role=str(job["role"]),
                warps=(int(job["warps"][0]), int(job["warps"][1])),
                stamped_by=tuple(int(warp) for warp in job["stamped_by"]),
                awaits=None if job["awaits"] is None else int(job["awaits"]),
            )
            for job in data["jobs"]
        )
        return cls(
            name=str(data["name"]),
            warps_per_block=int(data["warps_per_block"]),
            slots=int(data["slots"]),
            jobs=jobs,
            job_of_pair=tuple(int(job) for job in data["job_of_pair"]),
            warp_of_pair=tuple(int(warp) for warp in data["warp_of_pair"]),
        )

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {
            "name": self.name,
            "warps_per_block": self.warps_per_block,
            "slots": self.slots,
            "jobs": [
                {
                    "name": job.name,
                    "op": job.op,
                    "kind": job.kind,
                    "role": job.role,
                    "warps": list(job.warps),
                    "stamped_by": list(job.stamped_by),
                    "awaits": job.awaits,
                }
                for job in self.jobs
            ],
            "job_of_pair": list(self.job_of_pair),
            "warp_of_pair": list(self.warp_of_pair),
        }

    @cached_property
    def pair_jobs(self) -> npt.NDArray[np.int32]:
        """int32[slots / 2]: the job of each slot pair, -1 where none."""
        return np.asarray(self.job_of_pair, dtype=np.int32)

    @cached_property
    def pair_warps(self) -> npt.NDArray[np.int32]:
        """int32[slots / 2]: the warp of each slot pair, -1 where none."""
        return np.asarray(self.warp_of_pair, dtype=np.int32)

    def job_name(self, job_id: int) -> str:
        """The job's name, or ``job#N`` for an id that the table does not have."""
        return self.jobs[job_id].name if 0 <= job_id < len(self.jobs) else f"job#{job_id}"

    def op_name(self, job_id: int) -> str:
        """The job's op, or ``unknown``."""
        return self.jobs[job_id].op if 0 <= job_id < len(self.jobs) else UNKNOWN_OP

    def kind_name(self, job_id: int) -> str:
        """The job's kind; jobs that the table does not have count as ``compute``, so that they are busy."""
        return self.jobs[job_id].kind if 0 <= job_id < len(self.jobs) else "compute"


def wait_sentence(report: dict[str, int], table: JobTable) -> str:
    """A wait report (``wait_report.h`` of the ABI) in words: who waited where, for how long, for what.

    Raises KeyError or TypeError when the report lacks a field or has one that is no number.
    """
    site = report["site"]
    awaits = table.jobs[site].awaits if 0 <= site < len(table.jobs) else None
    cause = "" if awaits is None else f" for {table.job_name(awaits)}"
    return (
        f"rank {report['rank']:d} block {report['block']:d} warp {report['warp']:d} waited "
        f"{report['waited_ns'] / 1e9:.1f} s in {table.job_name(site)}{cause} "
        f"({report['got']:d} of {report['want']:d} arrived)"
    )


@dataclass(frozen=True)
class StampLayout:
    """One rank's stamp region: block headers, then ``blocks x slots`` slots of ``slot_bytes`` bytes."""

    blocks: int
    slots: int
    slot_bytes: int

    @cached_property
    def _offsets(self) -> tuple[int, int]:
        from musetrace import _core

        slots_offset, region_bytes = _core.abi.stamp_layout(self.blocks, self.slots, self.slot_bytes)
        return int(slots_offset), int(region_bytes)

    @property
    def region_bytes(self) -> int:
        """Size of the region in bytes, a multiple of 128."""
        return self._offsets[1]

    def headers(self, region: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """View of a uint8[region_bytes] region as block headers, shape [blocks]."""
        from musetrace import _core

        dtype = np.dtype(_core.abi.block_header_dtype)
        return region[: self.blocks * dtype.itemsize].view(dtype)

    def stamps(self, region: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """View of a region as slots, uint32 or uint64, shape [blocks, slots]."""
        begin = self._offsets[0]
        size = self.blocks * self.slots * self.slot_bytes
        return region[begin : begin + size].view(f"<u{self.slot_bytes}").reshape(self.blocks, self.slots)
