"""A job table as a Triton kernel is compiled with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton.language as tl

from musetrace import _core
from musetrace.errors import UsageError
from musetrace.job_table import JobTable
from musetrace.record.source import SLOT_BYTES_OF_STAMPS


@dataclass(frozen=True)
class Place:
    """Where the stamps of a job stand: its begin slot in a block's slots, and what each iteration adds.

    ``slot_bytes`` is 0 in the off build.
    """

    slot_bytes: int
    slot: int
    iterations: int
    stride: int
    payload: bool
    instant: bool


class _Constant(tl.constexpr):  # type: ignore[misc]
    """A constant whose attributes are there in Triton's interpreter too, which does not unwrap it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["value"], name)


class Jobs:
    """A job table as a kernel is compiled with it, for a parameter of type ``tl.constexpr``.

    ``JOBS.load`` is what begin(), end() and so on take for the job ``load``.
    """

    def __init__(self, table: JobTable, slot_bytes: int) -> None:
        """``slot_bytes``: 4, 8, or 0 for no code at all. Raises UsageError; see :func:`jobs`."""
        self._slots = table.slots
        self._slot_bytes = slot_bytes
        self._shape = int(_core.abi.region_shape(table.slots, slot_bytes))
        self._places = {job.name: _place(table, number, slot_bytes) for number, job in enumerate(table.jobs)}

    def __getattr__(self, name: str) -> tl.constexpr:
        """The place of a job."""
        places = self.__dict__.get("_places", {})
        if name not in places:
            raise AttributeError(f"the job table has no job {name}; it has {', '.join(places)}")
        return _Constant(places[name])

    def _key(self) -> tuple[object, ...]:
        return self._slots, self._slot_bytes, tuple(self._places.items())

    def __eq__(self, other: object) -> bool:
        """Whether a kernel would be compiled to the same code."""
        return isinstance(other, Jobs) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        """All there is: Triton's cache of compiled kernels knows a constant by this text."""
        return f"Jobs{self._key()!r}"


def _place(table: JobTable, number: int, slot_bytes: int) -> Place:
    job = table.jobs[number]
    if job.owner != "block":
        raise UsageError(
            f"job {job.name} is one of warps, and Triton knows blocks alone: "
            f"give role {job.role} owner='block'"
        )
    if job.name.startswith("_"):
        raise UsageError(f"job {job.name}: in Triton, the name of a job does not begin with _")
    first_pair = table.job_of_pair.index(number)
    stride = 4 if job.payload else 2
    return Place(slot_bytes, 2 * first_pair, job.iterations, stride, job.payload, job.instant)


def jobs(table: JobTable, stamps: str = "register") -> Jobs:
    """A job table for a kernel's ``JOBS: tl.constexpr``.

    Args:
        table: all of its jobs are the block's (``Role(..., owner="block")``).
        stamps: as the recorder's ``stamps``: ``register`` for slots of 4 bytes, ``store`` for 8, ``off`` for
            a kernel without code for stamps. A stamp is stored at once either way.

    Raises:
        UsageError: a job is one of warps, or there is no such way to keep stamps.
    """
    if stamps not in SLOT_BYTES_OF_STAMPS:
        raise UsageError(f"stamps cannot be kept by {stamps!r}; choose register, store or off")
    return Jobs(table, SLOT_BYTES_OF_STAMPS[stamps])
