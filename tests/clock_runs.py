"""A run of two processes with clocks of their own: three ranks, two launches, one stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from musetrace.job_table import JobTable
from musetrace.store.frame import ChunkType
from tests.builders import JournalBuilder, launches_from_text

AHEAD_NS = 1_000_000
# Rank 2's clock is a ms ahead. Rank 0 sends first; in the first launch rank 1 is sure to be last, in the
# second rank 2 may be.
TEXT = f"""
r0 s0 l0 layer=0 sliding b0 w3 o_proj_send 10000 11000
r0 s0 l0 layer=0 sliding b0 w4 stop1_wait_ranks 11000 19000
r1 s0 l0 layer=0 sliding b0 w3 o_proj_send 10000 18000
r1 s0 l0 layer=0 sliding b0 w4 stop1_wait_ranks 18000 19000
r2 s0 l0 layer=0 sliding b0 w3 o_proj_send {AHEAD_NS + 10000} {AHEAD_NS + 12000}
r2 s0 l0 layer=0 sliding b0 w4 stop1_wait_ranks {AHEAD_NS + 12000} {AHEAD_NS + 19000}
r0 s0 l1 layer=1 sliding b0 w3 o_proj_send 30000 31000
r0 s0 l1 layer=1 sliding b0 w4 stop1_wait_ranks 31000 39000
r1 s0 l1 layer=1 sliding b0 w3 o_proj_send 30000 38000
r1 s0 l1 layer=1 sliding b0 w4 stop1_wait_ranks 38000 39000
r2 s0 l1 layer=1 sliding b0 w3 o_proj_send {AHEAD_NS + 30000} {AHEAD_NS + 38100}
r2 s0 l1 layer=1 sliding b0 w4 stop1_wait_ranks {AHEAD_NS + 38100} {AHEAD_NS + 39000}
"""
PEER = {"at_ns": 1_005_000, "offset_ns": -AHEAD_NS, "error_ns": 600}
WHY = "mapping the flags of another GPU's clock: no peer access"


def build_run_of_two_clocks(
    folder: Path,
    of_rank_2: dict[str, Any],
    host: str = "here",
    peer_at_end: bool = False,
    peer_between: dict[str, Any] | None = None,
) -> Path:
    """Ranks 0 and 1 of one process, rank 2 of another; its first anchor says more, and its last if asked.

    Its clock may be compared between its launches, too.
    """
    table = JobTable.built_in()
    for rank, launches in launches_from_text(TEXT, table, 1).items():
        ahead_ns = AHEAD_NS if rank == 2 else 0
        meta = {
            "process": f"process {rank // 2}",
            "host_clock": host if rank == 2 else "here",
            "clock": {"name": "globaltimer", "tick_ns": 32},
        }
        builder = JournalBuilder(folder, table, 1, rank=rank, world=3, meta=meta, anchor_ns=None)
        anchor = {"host_monotonic_ns": 5_000, "unix_ns": 5_000, "error_ns": 2_000}
        more = of_rank_2 if rank == 2 else {}
        builder.json(ChunkType.CLOCK, {"device_ns": 5_000 + ahead_ns, **anchor, **more})
        for number, launch in enumerate(launches):
            if number and rank == 2 and peer_between is not None:
                at_ns = peer_between["at_ns"]
                builder.json(ChunkType.CLOCK, {"device_ns": at_ns, **anchor, "peer": peer_between})
            builder.launch(launch)
        builder.step(0, 1, 2)
        last = {"peer": {**PEER, "at_ns": 1_045_000}} if more and peer_at_end else {}
        at_end = {"device_ns": 45_000 + ahead_ns, **anchor, "host_monotonic_ns": 45_000}
        builder.json(ChunkType.CLOCK, {**at_end, **last})
        builder.end()
    return folder
