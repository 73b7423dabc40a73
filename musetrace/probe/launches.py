"""Launches: from one to the next in a graph, and what of a grid runs at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.probe.facts import Experiment, Findings, exact, fact
from musetrace.probe.gpu import Gpu

CLUSTER_SIZES = (1, 2, 4, 8, 16)
_LAUNCHES = 60
_REPLAYS = 5
_EMPTY_LAUNCHES = 1000
_EMPTY_ROUNDS = 10
_FIRST_LAUNCHES = 5  # of a replay, before it runs steadily
_SHARED_BYTES = 200 << 10  # so that an SM holds one block of one launch
_KINDS = {
    "plain": "plain",
    "programmatic": "PDL, no trigger",
    "early_trigger": "PDL, trigger and wait first",
}
_MEANINGS = {
    "first_begins": "first block of the next launch begins",
    "last_begins": "last block of the next launch begins",
    "all_past_wait": "last block of the next launch is past its wait for the launch before",
}


def gaps_ns(times: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.int64]]:
    """From the end of a launch's last block to something of the next launch; from end to end, ``period``.

    ``times`` is [replays, launches, blocks, 3]: begin, past the wait, end, ns. First launches are left out.
    """
    begin, past_wait, end = np.moveaxis(times.astype(np.int64)[:, _FIRST_LAUNCHES:], -1, 0)
    ends = end.max(axis=2)
    return {
        "first_begins": begin.min(axis=2)[:, 1:] - ends[:, :-1],
        "last_begins": begin.max(axis=2)[:, 1:] - ends[:, :-1],
        "all_past_wait": past_wait.max(axis=2)[:, 1:] - ends[:, :-1],
        "period": np.diff(ends, axis=1),
    }


def boundary(gpu: Gpu) -> Findings:
    """Launches of 5 us in a graph, a block of 200 KiB of shared memory on every SM; and empty ones."""
    facts = []
    for kind, meaning in _KINDS.items():
        times = gpu.module.boundary_times(kind, _SHARED_BYTES, _LAUNCHES, gpu.few(_REPLAYS))
        facts += [fact(name, "ns", gaps, case=meaning) for name, gaps in gaps_ns(times).items()]
    empty = gpu.module.empty_launch_times(_EMPTY_LAUNCHES, gpu.few(_EMPTY_ROUNDS))
    facts += [
        fact("empty_launch", "ns", 1000 * us.astype(np.float64), case=case, note="one block of one warp")
        for case, us in zip(("plain", "PDL, no trigger"), empty, strict=True)
    ]
    notes = [f"{name}: {meaning}, after the last block's end" for name, meaning in _MEANINGS.items()]
    return Findings(facts, [*notes, "period: from the end of one launch of 5 us to the end of the next"])


def clusters(gpu: Gpu) -> Findings:
    """How many clusters the driver says run at once; more would wait for ever for each other."""
    fit = gpu.module.clusters_that_fit(list(CLUSTER_SIZES))
    return Findings(
        [
            exact(
                "clusters",
                "",
                count,
                case=f"of {size} block{'s' * (size != 1)}",
                note=f"{count * size} blocks of {gpu.device['sms']} SMs",
            )
            for size, count in zip(CLUSTER_SIZES, fit, strict=True)
        ],
        ["blocks of 384 threads and 160 KiB of shared memory; 0: this GPU has no clusters of that size"],
    )


EXPERIMENTS = (
    Experiment("boundary", "from one launch in a graph to the next, with and without PDL", boundary),
    Experiment("clusters", "how many clusters of blocks run at once", clusters),
)
