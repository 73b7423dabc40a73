"""Where the time axis of a whole run begins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.spans.run_like import RunLike

Ints = npt.NDArray[np.int64]


def origin_ns(run: RunLike) -> int:
    """The earliest base of a step of any rank, by the first rank's clock; 0 where nothing was stamped."""
    clocks = rank_times(run)
    bases = []
    for rank in run.ranks:
        base: Ints = run.steps(rank)["base_ns"].to_numpy().astype(np.int64)
        bases += [int(clocks[rank].aligned(base[base > 0]).min())] if (base > 0).any() else []
    return min(bases, default=0)
