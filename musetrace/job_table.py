"""Job tables: what a kernel stamps, and where its stamps stand.

A table comes from the compiled module, a library or a declaration when a run is recorded; it also travels in
the run as JSON, so that a reader decodes a run of any build.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from musetrace.errors import UsageError

if TYPE_CHECKING:
    from musetrace.declare import NewJob, Role

JOB_KINDS = ("load", "compute", "wait", "send", "recv", "sync", "prefetch")
SCOPES = ("block", "rank", "ranks")
UNKNOWN_OP = "unknown"


@dataclass(frozen=True)
class Job:
    """One job of a table.

    ``awaits`` is the id of the job whose end a wait waits for, else None; ``scope`` is of whom: its own
    ``block``, all blocks of its ``rank``, or all ``ranks``; None where the author did not say, and in older
    runs. ``warps`` is the inclusive range of warps that do the job, ``stamped_by`` those of them that
    stamp it: none when the block owns the job (``owner`` is ``block``, else ``warp``). A launch has
    ``iterations`` instances of it; an ``instant`` has no end, and a ``payload`` is a u32 with each instance.
    ``bytes`` is what all blocks of the kernel move in it in one launch, None where nobody said.
    """

    name: str
    op: str
    kind: str
    role: str
    warps: tuple[int, int]
    stamped_by: tuple[int, ...]
    awaits: int | None
    iterations: int = 1
    payload: bool = False
    instant: bool = False
    owner: str = "warp"
    scope: str | None = None
    bytes: int | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Job:
        """Inverse of :meth:`to_json`; what older runs do not have gets its default."""
        return cls(
            name=str(data["name"]),
            op=str(data["op"]),
            kind=str(data["kind"]),
            role=str(data["role"]),
            warps=(int(data["warps"][0]), int(data["warps"][1])),
            stamped_by=tuple(int(warp) for warp in data["stamped_by"]),
            awaits=None if data["awaits"] is None else int(data["awaits"]),
            iterations=int(data.get("iterations", 1)),
            payload=bool(data.get("payload", False)),
            instant=bool(data.get("instant", False)),
            owner=str(data.get("owner", "warp")),
            scope=None if data.get("scope") is None else str(data["scope"]),
            bytes=None if data.get("bytes") is None else int(data["bytes"]),
        )

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {
            "name": self.name,
            "op": self.op,
            "kind": self.kind,
            "role": self.role,
            "warps": list(self.warps),
            "stamped_by": list(self.stamped_by),
            "awaits": self.awaits,
            "scope": self.scope,
            "iterations": self.iterations,
            "payload": self.payload,
            "instant": self.instant,
            "owner": self.owner,
            **({} if self.bytes is None else {"bytes": self.bytes}),
        }


@dataclass(frozen=True)
class KernelShape:
    """One kernel of a run, whose table is a part of the run's: ``slots`` of a block, from ``first_pair`` on.

    ``blocks`` are those of its grid.
    """

    name: str
    blocks: int
    slots: int
    warps_per_block: int
    first_pair: int

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> KernelShape:
        """Inverse of :func:`dataclasses.asdict`."""
        numbers = ("blocks", "slots", "warps_per_block", "first_pair")
        return cls(str(data["name"]), *(int(data[number]) for number in numbers))


@dataclass(frozen=True)
class JobTable:
    """The jobs of a kernel and where their stamps stand.

    Slot ``2 * pair`` of a block is a begin and ``2 * pair + 1`` the end of the instance ``iteration_of_pair``
    of job ``job_of_pair`` on warp ``warp_of_pair``; -1 marks a pair that no job uses, and the warp of a job
    that the block owns. Where ``payload_of_pair`` is set, the pair holds a payload and a 1 behind it, and
    belongs to the pair in front of it. Tables of older runs have no lists of iterations and payloads.

    The table of a run with other people's ``kernels`` is their tables one after the other; a slot is then
    that of a kernel (see :meth:`part`).
    """

    name: str
    warps_per_block: int
    slots: int
    jobs: tuple[Job, ...]
    job_of_pair: tuple[int, ...]
    warp_of_pair: tuple[int, ...]
    iteration_of_pair: tuple[int, ...] = ()
    payload_of_pair: tuple[bool, ...] = ()
    kernels: tuple[KernelShape, ...] = ()

    @classmethod
    def built_in(cls, name: str = "muse_layer") -> JobTable:
        """A job table of the compiled module."""
        from musetrace import _core

        return cls.from_json(_core.abi.job_tables[name])

    @classmethod
    def declare(
        cls, name: str, warps_per_block: int, roles: Sequence[Role], jobs: Sequence[NewJob]
    ) -> JobTable:
        """A table of one's own. Raises UsageError, naming the role or job that is wrong."""
        from musetrace import _core
        from musetrace.declare import rows_of

        rows = rows_of(warps_per_block, roles, jobs)
        try:
            made = cls.from_json(json.loads(_core.abi.declared_job_table(name, warps_per_block, *rows)))
        except ValueError as error:
            raise UsageError(f"job table {name}: {error}") from None
        return made.with_bytes({job.name: job.bytes for job in jobs if job.bytes is not None})

    @classmethod
    def from_library(cls, library: str | os.PathLike[str] | ctypes.CDLL, type_name: str) -> JobTable:
        """The table that a shared library exports by ``MUSETRACE_EXPORT_JOB_TABLE(type_name)``.

        Raises:
            UsageError: there is no such library, or no such table in it.
        """
        symbol = f"musetrace_job_table_{type_name}"
        try:
            loaded = library if isinstance(library, ctypes.CDLL) else ctypes.CDLL(os.fspath(library))
            export = getattr(loaded, symbol)
        except (OSError, AttributeError) as error:
            raise UsageError(
                f"cannot read the job table {type_name}: {error}; say "
                f"MUSETRACE_EXPORT_JOB_TABLE({type_name}) in a source of the library"
            ) from None
        export.restype, export.argtypes = ctypes.c_char_p, []
        return cls.from_json(json.loads(export()))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JobTable:
        """Inverse of :meth:`to_json`. Raises KeyError, TypeError or ValueError on anything else."""
        return cls(
            name=str(data["name"]),
            warps_per_block=int(data["warps_per_block"]),
            slots=int(data["slots"]),
            jobs=tuple(Job.from_json(job) for job in data["jobs"]),
            job_of_pair=tuple(int(job) for job in data["job_of_pair"]),
            warp_of_pair=tuple(int(warp) for warp in data["warp_of_pair"]),
            iteration_of_pair=tuple(int(number) for number in data.get("iteration_of_pair", ())),
            payload_of_pair=tuple(bool(is_payload) for is_payload in data.get("payload_of_pair", ())),
            kernels=tuple(KernelShape.from_json(kernel) for kernel in data.get("kernels", ())),
        )

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {
            "name": self.name,
            "warps_per_block": self.warps_per_block,
            "slots": self.slots,
            "jobs": [job.to_json() for job in self.jobs],
            "job_of_pair": list(self.job_of_pair),
            "warp_of_pair": list(self.warp_of_pair),
            "iteration_of_pair": list(self.iteration_of_pair),
            "payload_of_pair": list(self.payload_of_pair),
            **({"kernels": [asdict(kernel) for kernel in self.kernels]} if self.kernels else {}),
        }

    def with_bytes(self, given: Mapping[str, int]) -> JobTable:
        """The same table with the bytes of some jobs, by name."""
        if not given:
            return self
        jobs = (replace(job, bytes=given.get(job.name, job.bytes)) for job in self.jobs)
        return replace(self, jobs=tuple(jobs))

    def has_kernel(self, kernel: int) -> bool:
        """Whether there is a kernel of this number; a table that lists none has one, number 0."""
        return 0 <= kernel < max(len(self.kernels), 1)

    def part(self, kernel: int) -> JobTable | None:
        """Where the stamps of one kernel stand, with the job ids of the whole; None when there is none."""
        if not self.has_kernel(kernel):
            return None
        if not self.kernels:
            return self
        shape = self.kernels[kernel]
        pairs = slice(shape.first_pair, shape.first_pair + shape.slots // 2)
        return replace(
            self,
            slots=shape.slots,
            job_of_pair=self.job_of_pair[pairs],
            warp_of_pair=self.warp_of_pair[pairs],
            iteration_of_pair=self.iteration_of_pair[pairs],
            payload_of_pair=self.payload_of_pair[pairs],
            kernels=(),
        )

    def of_kernel(self, name: str) -> JobTable:
        """The part of the kernel of this name; the whole table when there is none."""
        numbers = {kernel.name: number for number, kernel in enumerate(self.kernels)}
        return (self.part(numbers[name]) if name in numbers else None) or self

    def first_pair(self, kernel: int) -> int:
        """The first of a kernel's slot pairs; 0 when there is no such kernel."""
        return self.kernels[kernel].first_pair if 0 <= kernel < len(self.kernels) else 0

    def blocks_of(self, kernel_name: str, otherwise: int) -> int:
        """The blocks of a kernel's grid; ``otherwise`` where no kernel of the table has this name."""
        return next((kernel.blocks for kernel in self.kernels if kernel.name == kernel_name), otherwise)

    @cached_property
    def pair_jobs(self) -> npt.NDArray[np.int32]:
        """int32[slots / 2]: the job of each slot pair, -1 where none."""
        return np.asarray(self.job_of_pair, dtype=np.int32)

    @cached_property
    def pair_warps(self) -> npt.NDArray[np.int32]:
        """int32[slots / 2]: the warp of each slot pair, -1 where none."""
        return np.asarray(self.warp_of_pair, dtype=np.int32)

    @property
    def has_instances(self) -> bool:
        """Whether some job has more than one instance in a launch, or a payload."""
        return any(job.iterations > 1 or job.payload for job in self.jobs)

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
