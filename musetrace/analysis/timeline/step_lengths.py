"""How long each step takes, one after the other."""

from __future__ import annotations

import pyarrow as pa

from musetrace.analysis.answer import answer, host_tick_ns, tick_ns
from musetrace.analysis.certainty.observed import seen_by_rank
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, LaunchColumns, Selection, chosen_ranks
from musetrace.analysis.timeline.outlier_steps import THRESHOLD, StepLengths
from musetrace.analysis.timeline.overview import STEP_CLOCKS

_FIELDS = [
    ("clock", pa.string()),
    ("step", pa.uint32()),
    ("step_ns", pa.int64()),
    ("step_uncertainty_ns", pa.int64()),
    ("is_outlier", pa.bool_()),
]


def step_lengths(run: RunLike, *, rank: int | None = None) -> pa.Table:
    """One row per clock (``device``, ``host``) and step that it saw, steps growing.

    ``step_ns`` is the length on the slowest rank, by the two times that ``step_times`` tells of.
    ``is_outlier``: the step is one of ``outlier_steps``, which judges by the device's clock; false for all of
    the host's.

    Meaning: whether the run drifts, and when it was slow. It lies about steps that lost their last launches.

    Raises:
        AnalysisError: the run has no such rank.
    """
    ranks = chosen_ranks(run, Selection(rank=rank))
    rows: list[dict[str, object]] = []
    for clock in STEP_CLOCKS:
        tick = tick_ns(run) if clock == "device" else host_tick_ns(run)
        steps = StepLengths.of(run, rank, clock)
        outliers = set(steps.outliers(THRESHOLD, tick)) if clock == "device" else set()
        rows += [
            {
                "clock": clock,
                "step": number,
                "step_ns": length,
                "step_uncertainty_ns": tick,
                "is_outlier": at in outliers,
            }
            for at, (number, length) in enumerate(
                zip(steps.step.tolist(), steps.longest_ns.tolist(), strict=True)
            )
        ]
    columns = {one: LaunchColumns.of(run.launches(one)) for one in ranks}
    return answer(run, _FIELDS, rows, Counted(seen=seen_by_rank(run, Selection(rank=rank), columns)))
