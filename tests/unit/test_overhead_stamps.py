"""How many stamps a step took: counted in memory as plain Python loops count them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from musetrace.abi import StampLayout
from musetrace.overhead.stamp_count import count_stamps
from tests.host_device import aligned_zeros

BLOCKS, SLOTS = 3, 8
# Its low half is near the wrap, so that stamps lie on both sides of it.
HEADER_NS = (7 << 32) - 50
# Away from the header in ns; None: not written. Warps may stamp before their block's header.
REGION = st.lists(
    st.lists(st.none() | st.integers(-900, 900), min_size=SLOTS, max_size=SLOTS),
    min_size=BLOCKS,
    max_size=BLOCKS,
)
LAUNCH = st.lists(REGION, min_size=2, max_size=2)


def memory_of(launch: list[list[list[int | None]]], layout: StampLayout) -> npt.NDArray[np.uint8]:
    memory = aligned_zeros(len(launch) * layout.region_bytes)
    for rank, blocks in enumerate(launch):
        region = memory[rank * layout.region_bytes : (rank + 1) * layout.region_bytes]
        layout.headers(region)["time_ns"] = HEADER_NS
        stamps = layout.stamps(region)
        for block, slots in enumerate(blocks):
            for slot, away in enumerate(slots):
                if away is not None:
                    # A stamp whose bits are all 0 is kept 1 ns late.
                    stamps[block, slot] = (HEADER_NS + away) % (1 << 8 * layout.slot_bytes) or 1
    return memory


@given(st.lists(LAUNCH, min_size=1, max_size=3), st.sampled_from([4, 8]))
def test_stamps_are_those_that_were_written(
    launches: list[list[list[list[int | None]]]], slot_bytes: int
) -> None:
    layout = StampLayout(BLOCKS, SLOTS, slot_bytes)
    got = count_stamps([memory_of(launch, layout) for launch in launches], layout, ranks=2)
    every, slowest, stamped = 0, set[int]({0}), 0
    for launch in launches:
        blocks = [[away for away in block if away is not None] for rank in launch for block in rank]
        every += sum(map(len, blocks))
        stamped += any(blocks)
        last = max((max(block) for block in blocks if block), default=None)
        # Blocks that end at once are all the slowest.
        counts = {len(block) for block in blocks if block and max(block) == last} or {0}
        slowest = {before + count for before in slowest for count in counts}
    assert (got.all, got.launches) == (every, stamped)
    # The time that is kept 1 ns late may make another block the last.
    late = any(away == 50 for launch in launches for rank in launch for block in rank for away in block)
    assert got.slowest in slowest or (late and slot_bytes == 4)
