"""The launches of one step, one after the other, on the device's clock and on the host's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.observed import seen_by_rank
from musetrace.analysis.certainty.percentiles import nearest_rank
from musetrace.analysis.spans.run_axis import RunAxis
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, LaunchColumns, Selection, check_step, chosen_ranks

Ints = npt.NDArray[np.int64]

_FIELDS = [
    ("rank", pa.uint32()),
    ("launch", pa.uint16()),
    ("layer", pa.int16()),
    ("kind", pa.string()),
    ("begin_ns", pa.int64()),
    ("end_ns", pa.int64()),
    ("from_ns", pa.int64()),
    ("gap_ns", pa.int64()),
    ("uncertainty_ns", pa.int64()),
    ("blocks", pa.uint32()),
    ("blocks_total", pa.uint32()),
    ("submit_ns", pa.int64()),
    ("host_step_ns", pa.int64()),
]


def launches_of_step(run: RunLike, *, step: int, rank: int | None = None) -> pa.Table:
    """One row per launch of a step, rank by rank, in the order of the step; those without stamps too.

    ``begin_ns`` and ``end_ns`` are from the step's first time on any rank in scope, on the aligned axis
    (``clocks``); ``from_ns`` is the begin from the run's origin (``spans.run_axis``). ``gap_ns`` is from the
    launch's end to the begin of the step's next one on the rank: negative where they overlap (PDL), null
    where the next one is not there. ``uncertainty_ns`` is that of each of them, a tick; against other ranks
    the alignment's error comes on top. ``blocks`` reported, of ``blocks_total``. A launch without stamps has
    null times.

    ``submit_ns`` is when the program launched it, from the step's begin on the host's clock, which lasts
    ``host_step_ns``; null where that was not recorded.

    Meaning: what a step looks like in the large, kernel by kernel. Host and device have clocks of their own:
    nothing here sets one against the other.

    Raises:
        AnalysisError: the run has no such rank or step.
    """
    ranks = chosen_ranks(run, Selection(rank=rank))
    check_step(run, ranks, step)
    columns = {one: LaunchColumns.of(run.launches(one)) for one in ranks}
    axis, tick = RunAxis.of(run), tick_ns(run)
    of_step = {one: its.take(np.flatnonzero(its.step == step)) for one, its in columns.items()}
    begins = {one: axis.on_axis(one, its.begin_ns) for one, its in of_step.items()}
    stamped = [begins[one][its.stamped] for one, its in of_step.items()]
    first_ns = int(min((times.min() for times in stamped if len(times)), default=0))
    rows: list[dict[str, Any]] = []
    for one, its in of_step.items():
        host = _host_times(run, one, step)
        for at, launch in enumerate(its.launch.tolist()):
            row = {"rank": one, "launch": launch, "layer": int(its.layer[at]), "kind": its.kind[at]}
            row |= {"blocks": int(its.blocks[at])}
            row |= {"blocks_total": run.job_table.blocks_of(str(its.kind[at]), run.blocks)}
            row |= {"host_step_ns": host.length_ns, "submit_ns": host.submits.get(launch)}
            if its.stamped[at]:
                begin = int(begins[one][at]) - first_ns
                length = int(its.end_ns[at] - its.begin_ns[at])
                row |= {"begin_ns": begin, "end_ns": begin + length, "from_ns": begin + first_ns}
                row |= {"gap_ns": _gap_ns(its, at), "uncertainty_ns": tick}
            rows.append(row)
    seen = seen_by_rank(run, Selection(None, rank, step), columns)
    return answer(run, _FIELDS, rows, Counted(seen=seen))


def typical_step(run: RunLike, rank: int | None = None) -> int | None:
    """The first step of median length on the device, on the first rank in scope that stamped any.

    Without stamps the first step; None for a run without steps.
    """
    ranks = chosen_ranks(run, Selection(rank=rank))
    for one in ranks:
        table = run.steps(one)
        step, begin, end = (table[name].to_numpy().astype(np.int64) for name in ("step", "base_ns", "end_ns"))
        stamped = (begin > 0) & (end >= begin)
        if stamped.any():
            lengths = (end - begin)[stamped]
            median = nearest_rank(lengths, (50,))[0]
            return int(step[stamped][np.flatnonzero(lengths == median)[0]])
    return next((step for one in ranks for step in run.step_ids(one)), None)


def _gap_ns(launches: LaunchColumns, at: int) -> int | None:
    """From a launch's end to the next one's begin, by one clock."""
    if at + 1 >= len(launches.launch) or not launches.stamped[at + 1]:
        return None
    if launches.launch[at + 1] != launches.launch[at] + 1:
        return None
    return int(launches.begin_ns[at + 1] - launches.end_ns[at])


class _HostTimes:
    """A step on the host's clock: how long, and when each launch was submitted, from its begin."""

    def __init__(self, length_ns: int | None, submits: Mapping[int, int]) -> None:
        self.length_ns = length_ns
        self.submits = submits


def _host_times(run: RunLike, rank: int, step: int) -> _HostTimes:
    steps, launches = run.steps(rank), run.launches(rank)
    mine = steps.filter(steps["step"].to_numpy() == step)
    if mine.num_rows == 0 or "submit_ns" not in launches.column_names:
        return _HostTimes(None, {})
    begin, end = (int(mine[name][0].as_py()) for name in ("host_begin_ns", "host_end_ns"))
    if not 0 < begin <= end:
        return _HostTimes(None, {})
    of_step = launches.filter(launches["step"].to_numpy() == step)
    launched = zip(of_step["launch"].to_pylist(), of_step["submit_ns"].to_pylist(), strict=True)
    return _HostTimes(end - begin, {launch: at - begin for launch, at in launched if at >= begin})
