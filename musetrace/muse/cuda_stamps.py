"""How stamps of the megakernel leave the GPU: regions that its launches write, and copies in pinned memory.

The copies run on a stream of their own, each behind the launches before it. A region is cleared behind its
copy, in the same stream, so that a slot of 0 means "not written" in the next launch that gets it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from musetrace.record.cuda_memory import CopyStream, device_zeros, pinned_zeros
from musetrace.record.kernel_launch import Ended


class StampCopies:
    """The copies of one device.

    Args:
        launches: address of the CUDA stream that the kernels are launched in.
        gpu: where the regions lie.
    """

    def __init__(self, launches: int, gpu: torch.device) -> None:
        self._gpu = gpu
        self._launches = torch.cuda.ExternalStream(launches)  # type: ignore[no-untyped-call]
        self._copies = CopyStream()
        self._hosts: dict[int, Tensor] = {}
        self._regions: dict[int, Tensor] = {}

    def allocate(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Zeroed pinned memory, uint8[size_bytes], aligned to 128, with a region of its own on the GPU.

        The region is free to use whenever the memory is: whoever waits for a copy waits for the clearing.

        Raises:
            MemoryError: there is no more.
        """
        host, region = pinned_zeros(1, size_bytes)[0], self.regions(1, size_bytes)
        self._hosts[host.data_ptr()], self._regions[host.data_ptr()] = host, region
        memory: npt.NDArray[np.uint8] = host.numpy()
        return memory

    def regions(self, launches: int, size_bytes: int) -> Tensor:
        """Cleared regions on the GPU, uint8[launches, size_bytes]. Raises MemoryError."""
        cleared = device_zeros(launches, size_bytes, self._gpu)
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
        hosts = [self._hosts[address] for address in addresses]
        return self._copies.bring(self._launches, zip(regions, hosts, strict=False), regions.zero_)

    def hold_launches(self) -> None:
        """Let later launches begin behind all copies and clearings so far."""
        self._launches.wait_stream(self._copies.stream)
