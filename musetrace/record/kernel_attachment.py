"""From what a user gives attach() to a kernel that can be recorded, or one line that says why not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from musetrace.errors import RecordError
from musetrace.job_bytes import checked_bytes
from musetrace.record.cpu_kernel_device import CpuKernelDevice
from musetrace.record.cuda_kernel_device import CudaKernelDevice
from musetrace.record.kernel_device import KernelDevice
from musetrace.record.kernel_table import KernelTable, job_table_of
from musetrace.record.source import MAX_BUFFERS, is_integer
from musetrace.store import limits

_DIMENSIONS = 3


def kernel_table(
    given: object, grid: int | Sequence[int] | None, name: str | None, moved: object = None
) -> KernelTable:
    """A kernel by its table, its grid, its name and the bytes that its jobs move. Raises RecordError."""
    table = job_table_of(given)
    chosen = table.name if name is None else name
    if not isinstance(chosen, str) or not 0 < len(chosen) <= limits.MAX_NAME_CHARS:
        raise RecordError(f"{chosen!r} is no name for a kernel: give 1 to {limits.MAX_NAME_CHARS} characters")
    blocks = _blocks(grid, chosen)
    if moved is not None:
        try:
            table = table.with_bytes(checked_bytes(moved, [job.name for job in table.jobs], chosen))
        except ValueError as error:
            raise RecordError(str(error)) from None
    return KernelTable(chosen, blocks, table)


def _blocks(grid: object, name: str) -> int:
    sizes: list[Any] = list(grid) if isinstance(grid, Sequence) and not isinstance(grid, str) else [grid]
    if not 1 <= len(sizes) <= _DIMENSIONS or not all(is_integer(size) and size >= 1 for size in sizes):
        raise RecordError(
            f"the grid of kernel {name} is {grid!r}; give the number of its blocks, or up to 3 dimensions"
        )
    blocks = math.prod(int(size) for size in sizes)
    if blocks > limits.MAX_BLOCKS:
        raise RecordError(f"kernel {name} has {blocks} blocks; at most {limits.MAX_BLOCKS} can be recorded")
    return blocks


def check_buffers(buffers: int) -> None:
    """Raises RecordError for a number of buffers that cannot be."""
    if not is_integer(buffers) or not 1 <= buffers <= MAX_BUFFERS:
        raise RecordError(f"buffers is {buffers!r}; it must be 1 to {MAX_BUFFERS}")


def open_kernel_device(device: str) -> KernelDevice:
    """The device that kernels run on. Raises RecordError when it is not there."""
    if device == "cpu":
        return CpuKernelDevice()
    if device == "cuda":
        return CudaKernelDevice()
    raise RecordError(f"kernels are recorded on 'cuda' or 'cpu', not on {device!r}")
