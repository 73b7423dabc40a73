"""What the region of somebody's kernel says after a launch, and which of its stamps are the last launch's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.abi import StampLayout

Region = npt.NDArray[np.uint8]

_HEADER = np.dtype(_core.abi.region_header_dtype)
HEADER_BYTES = _HEADER.itemsize
# What the host writes of it stands in front of what the kernel does.
HOST_BYTES = _HEADER.fields["launches"][1]
EPOCH_WORD = _HEADER.fields["epoch"][1] // 4
_FIRST_EPOCH_WORD = (HEADER_BYTES + np.dtype(_core.abi.block_header_dtype).fields["epoch"][1]) // 4
_SLOTS_BITS = 24


@dataclass(frozen=True)
class RegionState:
    """What happened in a region since it was cleared.

    ``launches`` of the kernel, and whether the stamps of the last one are there; ``dropped_blocks`` in each
    of them for which there was no room; ``built_for`` is (slots, slot_bytes) of a kernel that the region does
    not fit, None where it fits.
    """

    launches: int
    is_there: bool
    dropped_blocks: int
    built_for: tuple[int, int] | None


def region_state(layout: StampLayout, region: Region, epoch: int) -> RegionState:
    """Read the header of a uint8[region_bytes] region; ``epoch`` is that of the last launch."""
    header = layout.region_header(region)[0]
    launches, mismatch = int(header["launches"]), int(header["mismatch"])
    is_there = bool((layout.headers(region)["epoch"] == epoch).any())
    if launches == 0 and (mismatch or is_there):
        launches = 1  # a kernel that does not count
    built_for = (mismatch & ((1 << _SLOTS_BITS) - 1), mismatch >> _SLOTS_BITS) if mismatch else None
    return RegionState(launches, is_there, int(header["dropped_blocks"]) // max(launches, 1), built_for)


def rows_that_ran(regions: npt.NDArray[np.uint8], epoch: int) -> list[int]:
    """Which of some regions, uint8[rows, region_bytes], somebody wrote to since they were cleared."""
    words = regions.view(np.uint32)
    wrote = words[:, HOST_BYTES // 4 : HEADER_BYTES // 4].any(axis=1)
    # A kernel that does not count its launches says so in the header of its first block.
    return np.flatnonzero(wrote | (words[:, _FIRST_EPOCH_WORD] == epoch)).tolist()


def write_header(layout: StampLayout, region: Region, epoch: int) -> None:
    """Tell the kernel of a cleared region what it has room for."""
    header = layout.region_header(region)
    header["blocks"], header["slots"] = layout.blocks, layout.slots
    header["slot_bytes"], header["epoch"] = layout.slot_bytes, epoch


def drop_earlier_launches(
    layout: StampLayout, region: Region, epoch: int, payload_pairs: npt.NDArray[np.bool_]
) -> None:
    """Clear what launches before the last one left in a region that was not cleared between them.

    A slot that the last launch did not write still holds the stamp of an earlier one, which had ended when
    the first block of the last began. ``payload_pairs`` bool[slots / 2] are those that hold no times.
    """
    headers = layout.headers(region)
    begun = headers["time_ns"][headers["epoch"] == epoch]
    if len(begun) == 0:
        return
    pairs = layout.stamps(region).reshape(layout.blocks, layout.slots // 2, 2)
    earlier = _is_earlier(pairs, int(begun.min())) | (pairs == 0)
    gone = earlier.all(axis=2) & ~payload_pairs
    gone[:, 1:] |= gone[:, :-1] & payload_pairs[1:]
    pairs[gone] = 0


def _is_earlier(stamps: npt.NDArray[Any], time_ns: int) -> npt.NDArray[np.bool_]:
    if stamps.dtype.itemsize == 8:
        return stamps < np.uint64(time_ns)
    # Of a time only the low half is there: what is less than 2.1 s away from it on the circle.
    return (stamps - np.uint32(time_ns & 0xFFFFFFFF)).astype(np.int32) < 0
