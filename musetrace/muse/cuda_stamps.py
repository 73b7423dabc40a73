"""How stamps leave the GPU: regions that kernels write, and copies of them into pinned host memory.

The copies run on a stream of their own, each behind the launches before it. A region is cleared behind its
copy, in the same stream, so that a slot of 0 means "not written" in the next launch that gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from musetrace import _core


class Ended(Protocol):
    """Something in a stream that can be waited for, in any thread."""

    def synchronize(self) -> None:
        """Until it has ended."""


class StampCopies:
    """The copies of one device.

    Args:
        launches: address of the CUDA stream that the kernels are launched in.
        gpu: where the regions lie.
    """

    def __init__(self, launches: int, gpu: torch.device) -> None:
        self._gpu = gpu
        self._launches = torch.cuda.ExternalStream(launches)  # type: ignore[no-untyped-call]
        self._copies = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._hosts: dict[int, Tensor] = {}
        self._regions: dict[int, Tensor] = {}

    def allocate(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Zeroed pinned memory, uint8[size_bytes], aligned to 128, with a region of its own on the GPU.

        The region is free to use whenever the memory is: whoever waits for a copy waits for the clearing.

        Raises:
            MemoryError: there is no more.
        """
        align = int(_core.abi.REGION_ALIGN)
        try:
            pinned = torch.zeros(size_bytes + align, dtype=torch.uint8, pin_memory=True)
            region = self.regions(1, size_bytes)
        except RuntimeError as error:
            raise MemoryError(f"no memory for stamps: {error}") from error
        offset = -pinned.data_ptr() % align
        host = pinned[offset : offset + size_bytes]
        self._hosts[host.data_ptr()], self._regions[host.data_ptr()] = host, region
        memory: npt.NDArray[np.uint8] = host.numpy()
        return memory

    def regions(self, launches: int, size_bytes: int) -> Tensor:
        """Cleared regions on the GPU, uint8[launches, size_bytes]."""
        cleared = torch.zeros(launches, size_bytes, dtype=torch.uint8, device=self._gpu)
        # Cleared in torch's stream, written in another.
        torch.cuda.current_stream().synchronize()
        return cleared

    def region_of(self, address: int) -> Tensor:
        """The region uint8[1, size_bytes] of the allocated memory at a host address."""
        return self._regions[address]

    def fetch(self, regions: Tensor, addresses: Sequence[int]) -> Ended:
        """Copy region i to the memory at address i, behind all launches so far, then clear all regions.

        Args:
            regions: uint8[n, size_bytes].
            addresses: of n allocated memories, or empty: then nothing is copied.
        """
        self._copies.wait_stream(self._launches)
        ended = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._copies):
            for region, address in zip(regions, addresses, strict=False):
                self._hosts[address].copy_(region, non_blocking=True)
            regions.zero_()
            ended.record(self._copies)
        return ended

    def hold_launches(self) -> None:
        """Let later launches begin behind all copies and clearings so far."""
        self._launches.wait_stream(self._copies)
