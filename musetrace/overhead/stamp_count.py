"""How many stamps a step takes, counted in the memory that it stamped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.abi import StampLayout


@dataclass(frozen=True)
class StampCount:
    """Stamps of one step.

    ``all`` blocks together; ``slowest`` is the sum over the launches of the stamps of the block that stamped
    last in its launch. ``launches`` is how many stamped at all, None where that was not looked at. Block
    headers, one to a block and launch, are not counted.
    """

    all: int
    slowest: int
    launches: int | None = None

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        return {
            "stamps_per_step": self.all,
            "stamps_of_slowest_blocks_per_step": self.slowest,
            "launches_that_stamped": self.launches,
        }


def count_stamps(launches: Iterable[npt.NDArray[np.uint8]], layout: StampLayout, ranks: int) -> StampCount:
    """Count what one step stamped into cleared memory.

    Args:
        launches: for each launch uint8[ranks * region_bytes], the regions of its ranks one after the other.
        layout: of a rank's region.
        ranks: that ran together.
    """
    counted = [_of_launch(memory, layout, ranks) for memory in launches]
    return StampCount(
        sum(of_all for of_all, _ in counted),
        sum(of_slowest for _, of_slowest in counted),
        sum(of_all > 0 for of_all, _ in counted),
    )


def _of_launch(memory: npt.NDArray[np.uint8], layout: StampLayout, ranks: int) -> tuple[int, int]:
    """Stamps of all blocks of a launch, and of the block whose last stamp is the latest."""
    counts, lasts = [], []
    for region in memory.reshape(ranks, layout.region_bytes):
        stamps = layout.stamps(region)
        counts.append(np.count_nonzero(stamps, axis=1))
        lasts.append(_last_stamps(stamps, layout.headers(region)["time_ns"]))
    of_block = np.concatenate(counts)
    return int(of_block.sum()), int(of_block[np.concatenate(lasts).argmax()])


def _last_stamps(stamps: npt.NDArray[Any], headers_ns: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The last stamp of each block, int64[blocks] ns; below all others where a block has none."""
    begins = headers_ns.astype(np.int64)[:, None]
    if stamps.dtype.itemsize == 4:
        # The low halves, as a distance from the header's, which may be negative (abi/stamp.h).
        away = (stamps - begins.astype(np.uint32)).astype(np.int32).astype(np.int64)
        times = begins + away
    else:
        times = stamps.astype(np.int64)
    last: npt.NDArray[np.int64] = np.where(stamps == 0, np.iinfo(np.int64).min, times).max(axis=1)
    return last
