"""Python's view of the stamp ABI: the layout of a stamp region.

It comes from the compiled module (``csrc/include/musetrace/abi``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class StampLayout:
    """One rank's stamp region: its header, block headers, ``blocks x slots`` slots of ``slot_bytes``."""

    blocks: int
    slots: int
    slot_bytes: int

    @cached_property
    def _offsets(self) -> tuple[int, int, int]:
        from musetrace import _core

        headers, slots, end = _core.abi.stamp_layout(self.blocks, self.slots, self.slot_bytes)
        return int(headers), int(slots), int(end)

    @property
    def region_bytes(self) -> int:
        """Size of the region in bytes, a multiple of 128."""
        return self._offsets[2]

    def region_header(self, region: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """View of the header of a uint8[region_bytes] region, shape [1]."""
        from musetrace import _core

        dtype = np.dtype(_core.abi.region_header_dtype)
        return region[: dtype.itemsize].view(dtype)

    def headers(self, region: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """View of a uint8[region_bytes] region as block headers, shape [blocks]."""
        from musetrace import _core

        dtype = np.dtype(_core.abi.block_header_dtype)
        begin = self._offsets[0]
        return region[begin : begin + self.blocks * dtype.itemsize].view(dtype)

    def stamps(self, region: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """View of a region as slots, uint32 or uint64, shape [blocks, slots]."""
        begin = self._offsets[1]
        size = self.blocks * self.slots * self.slot_bytes
        return region[begin : begin + size].view(f"<u{self.slot_bytes}").reshape(self.blocks, self.slots)
