"""Memory for stamps: on the GPU, where kernels write, and pinned on the host, where copies of it go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from musetrace import _core
from musetrace.record.kernel_launch import Ended

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def pinned_zeros(rows: int, size_bytes: int) -> Tensor:
    """Zeroed pinned memory, uint8[rows, size_bytes]; the first row is aligned as a region must be.

    Raises:
        MemoryError: there is no more.
    """
    import torch

    align = int(_core.abi.REGION_ALIGN)
    try:
        whole = torch.zeros(rows * size_bytes + align, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as error:
        raise MemoryError(f"no memory for stamps: {error}") from error
    offset = -whole.data_ptr() % align
    return whole[offset : offset + rows * size_bytes].view(rows, size_bytes)


def device_zeros(rows: int, size_bytes: int, gpu: torch.device, stream: Any = None) -> Tensor:
    """Cleared memory on the GPU, uint8[rows, size_bytes], cleared in a stream (default: torch's current one).

    The stream must be waited for before another uses it.

    Raises:
        MemoryError: there is no more.
    """
    import torch

    try:
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            return torch.zeros(rows, size_bytes, dtype=torch.uint8, device=gpu)
    except RuntimeError as error:
        raise MemoryError(f"no memory for stamps: {error}") from error


class CopyStream:
    """The stream in which stamps leave the GPU, beside the program's streams."""

    def __init__(self) -> None:
        """On torch's current GPU."""
        import torch

        self._torch = torch
        self.stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def bring(
        self, behind: Any, copies: Iterable[tuple[Tensor, Tensor]], then: Callable[[], object]
    ) -> Ended:
        """Queue copies behind all that a stream has now, then what ``then`` queues.

        Args:
            behind: a stream of torch.
            copies: each from memory of the GPU into pinned memory.
            then: queues work in torch's current stream, such as the clearing of what was copied.

        Returns:
            What ends when all of it has.
        """
        ended: Any = self._torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self.stream.wait_stream(behind)
        with self._torch.cuda.stream(self.stream):
            for source, target in copies:
                target.copy_(source, non_blocking=True)
            then()
            ended.record(self.stream)
        return ended  # type: ignore[no-any-return]
