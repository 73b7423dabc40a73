"""What to fix first: what blocks wait for over a whole step, largest first, and where to look next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from musetrace.analysis.answer import answer
from musetrace.analysis.certainty.clock_quality import places
from musetrace.analysis.gaps.attribution import attribution
from musetrace.analysis.gaps.idle import idle
from musetrace.analysis.gaps.idle_after import gathering, idle_after
from musetrace.analysis.gaps.producers import RANKS
from musetrace.analysis.paths.what_if import what_ifs
from musetrace.analysis.priorities.gains import FASTER, GONE, Gain, best_gains, gains
from musetrace.analysis.priorities.late import Late, late_of
from musetrace.analysis.priorities.step_causes import Cause, PerStep, Row, merged_causes, rounded
from musetrace.analysis.spans.rows import LOADING_KINDS
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted
from musetrace.analysis.timeline.overview import launch_times, step_times

IDLE_CAUSE, IDLE_AFTER, WHAT_IF = "idle_cause", "idle_after", "what_if"

_LAUNCHES = pa.list_(
    pa.struct(
        [
            ("kind", pa.string()),
            ("per_step", pa.float64()),
            ("idle_mean_ns", pa.int64()),
            ("idle_mean_uncertainty_ns", pa.int64()),
        ]
    )
)
_FIELDS = [
    ("finding", pa.string()),
    ("place", pa.uint32()),
    ("cause", pa.string()),
    ("op", pa.string()),
    ("wait", pa.string()),
    ("awaits", pa.string()),
    ("producer_op", pa.string()),
    ("scope", pa.string()),
    ("per_step_ns", pa.int64()),
    ("per_step_uncertainty_ns", pa.int64()),
    ("share_of_idle", pa.float64()),
    ("share_of_step", pa.float64()),
    ("launches", _LAUNCHES),
    ("not_ready_share", pa.float64()),
    ("late_rank", pa.uint32()),
    ("late_rank_share", pa.float64()),
    ("late_block", pa.uint32()),
    ("late_block_rank", pa.uint32()),
    ("late_block_share", pa.float64()),
    ("gone_saves_ns", pa.int64()),
    ("gone_saves_uncertainty_ns", pa.int64()),
    ("how", pa.string()),
    ("target", pa.string()),
    ("share_of_launch_idle", pa.float64()),
    ("share_of_launch_time", pa.float64()),
    ("shown_in", pa.list_(pa.string())),
    ("look_at", pa.string()),
]
# Where the next thing to look at stands, for causes that are no wait; the names are those of the questions.
_LOOK_AT = {
    "head": "launch_edges",
    "tail": "blocks",
    "load_only": "loads_ahead",
    "unlabelled": "ops",
    "short": "ops",
}
_MOSTLY = 0.5


@dataclass(frozen=True)
class Evidence:
    """The answers that findings are made of, all of one scope; mappings are by kind of launch.

    ``ranks`` is the number of ranks in scope.
    """

    ranks: int
    steps: pa.Table
    launches: pa.Table
    idle: Mapping[str, pa.Table]
    idle_after: Mapping[str, pa.Table]
    attribution: pa.Table
    what_ifs: Mapping[str, pa.Table]


def findings(
    run: RunLike, *, layer_kind: str | None = None, rank: int | None = None, step: int | None = None
) -> pa.Table:
    """One row per finding: the causes of idle time by ``place``, behind which ops it gathers, best changes.

    ``idle_cause``: a cause as ``idle`` has it, over all kinds of launches in scope. ``per_step_ns`` is how
    long an average block is idle for it in a step: for each kind of launch the mean of a block of a launch
    times the launches of a step, as ``launches`` lists them (``per_step`` launches, ``idle_mean_ns`` each),
    summed up. ``share_of_idle`` is of all idle time, ``share_of_step`` of the mean step by the device's
    clock. Of ``place`` 1 is the most time; what the clock cannot tell apart shares a place (all do where its
    step is not known). ``awaits`` is the job that the ``wait`` waits for, ``producer_op`` its op, ``scope``
    whose job it is; ``not_ready_share`` the part of these waits in which it was not done (``attribution``;
    time of warps), null where no wait tells. ``late_rank``, and ``late_block`` of ``late_block_rank``, ended
    last in most of the waits, null unless that is certain (``late_of``). If the wait cost nothing a step
    would be shorter by ``gone_saves_ns`` (``what_ifs``), which may be much less than is idle.

    ``idle_after``: for each kind of launch the op behind whose end idle time gathers most; it counts time
    that the causes have too, and has no place. ``share_of_launch_idle`` of the idle time of the kind's
    launches lies in ``share_of_launch_time`` of their time.

    ``what_if``: the changes that would save most of a step (``per_step_ns``), as far as the clock tells,
    three for each ``how``: ``target`` is a stop or a wait that is ``gone``, or an op that is 10 %
    ``faster``. Of ``place`` 1 is the most of its ``how``.

    ``shown_in`` are the questions that have the numbers, ``look_at`` the one to go on with: ``launch_edges``
    for what is launched late, ``blocks`` for blocks without work, ``loads_ahead`` for a load, ``stops`` for
    other ranks, ``ops`` for an awaited job that is not ready, ``attribution`` where it mostly is, so that the
    way from it takes the time.

    Meaning: what would have to come sooner, in the order of what it costs. Idle time of blocks is not time of
    the step: what a block waits for beside others that work may cost it nothing. Launches that overlap (PDL)
    count each for itself. It lies as ``idle``, ``attribution`` and ``what_ifs`` do.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    return findings_from(run, evidence_of(run, layer_kind=layer_kind, rank=rank, step=step))


def evidence_of(run: RunLike, *, layer_kind: str | None, rank: int | None, step: int | None) -> Evidence:
    """Ask all that findings are made of."""
    launches = launch_times(run, rank=rank, step=step)
    if layer_kind is not None:
        launches = launches.filter(pc.equal(launches["kind"], layer_kind))
    kinds = launches["kind"].to_pylist() if layer_kind is None else [layer_kind]
    return Evidence(
        len(run.ranks) if rank is None else 1,
        step_times(run, rank=rank, step=step),
        launches,
        {kind: idle(run, layer_kind=kind, rank=rank, step=step) for kind in kinds},
        {kind: idle_after(run, layer_kind=kind, rank=rank, step=step) for kind in kinds},
        attribution(run, layer_kind=layer_kind, rank=rank, step=step),
        {kind: what_ifs(run, layer_kind=kind, rank=rank, step=step) for kind in kinds},
    )


def findings_from(run: RunLike, evidence: Evidence) -> pa.Table:
    """The answer of :func:`findings`, from answers that are already there."""
    per_step = PerStep.of(evidence.steps, evidence.launches)
    if per_step is None:
        return _answer(run, [], evidence)
    causes, all_gains = merged_causes(run, evidence.idle), gains(evidence.what_ifs)
    ranked = [{"finding": IDLE_CAUSE, **cause.row(per_step)} for cause in causes]
    whole_ns = sum(row["per_step_ns"] for row in ranked)
    for row, cause in zip(ranked, causes, strict=True):
        row["share_of_idle"] = row["per_step_ns"] / whole_ns if whole_ns else None
        row |= _about_wait(run, cause, evidence)
        row |= _if_gone(row, all_gains.get((GONE, row["wait"])))
    off = [row["per_step_uncertainty_ns"] for row in ranked]
    for row, place in zip(ranked, places([-row["per_step_ns"] for row in ranked], off), strict=True):
        row["place"] = place + 1
    ranked.sort(key=lambda row: int(row["place"]))
    behind = [_behind(kind, table, per_step, whole_ns) for kind, table in evidence.idle_after.items()]
    rows = [*ranked, *(row for row in behind if row is not None)]
    for how in (GONE, FASTER):
        rows += [_change(found, per_step) for found in best_gains(run.job_table, all_gains, how)]
    return _answer(run, rows, evidence)


def _answer(run: RunLike, rows: Sequence[Row], evidence: Evidence) -> pa.Table:
    """What was observed is what the waits of the same launches and spans tell."""
    table = answer(run, _FIELDS, rows, Counted())
    return table.replace_schema_metadata(evidence.attribution.schema.metadata)


def _about_wait(run: RunLike, cause: Cause, evidence: Evidence) -> Row:
    """What a cause waits for, who was late, and where to look."""
    shown_in = ["idle"]
    if cause.any["wait"] is None:
        return {"shown_in": shown_in, "look_at": _LOOK_AT[cause.any["cause"]]}
    mine = [row for row in evidence.attribution.to_pylist() if row["wait"] == cause.any["wait"]]
    if len(mine) != 1:  # no producer is declared, or kernels have waits of one name
        return {"shown_in": shown_in, "look_at": "ops"}
    pair, total = mine[0], mine[0]["total_ns"]
    not_ready_ns = pair["before_ns"] + pair["under_way_ns"]
    # Waits of which no producer is known do not tell that it was always done.
    is_told = not_ready_ns > 0 or (total > 0 and not pair["unmatched_n"])
    not_ready = not_ready_ns / total if is_told else None
    launches = sum(row["n"] for row in evidence.launches.to_pylist() if row["kind"] in cause.by_kind)
    # All ranks that wait in a launch may wait for one of them.
    cases = launches // evidence.ranks if pair["scope"] == RANKS else launches
    return {
        "producer_op": pair["producer_op"],
        "scope": pair["scope"],
        "not_ready_share": not_ready,
        **_late_columns(late_of(pair, cases, len(run.ranks))),
        "shown_in": [*shown_in, "attribution"],
        "look_at": _next_to(run, cause, not_ready),
    }


def _late_columns(late: Late) -> Row:
    rank, block = late.rank or {}, late.block or {}
    return {
        "late_rank": rank.get("rank"),
        "late_rank_share": rank.get("share"),
        "late_block": block.get("block"),
        "late_block_rank": block.get("rank"),
        "late_block_share": block.get("share"),
    }


def _next_to(run: RunLike, cause: Cause, not_ready: float | None) -> str:
    kinds = {job.name: job.kind for job in run.job_table.jobs}
    if cause.any["cause"] == "stop":
        return "stops"
    if kinds.get(cause.any["awaits"]) in LOADING_KINDS:
        return "loads_ahead"
    return "attribution" if not_ready is not None and not_ready < _MOSTLY else "ops"


def _behind(kind: str, table: pa.Table, per_step: PerStep, whole_ns: int) -> Row | None:
    """The op behind which the idle time of a kind of launch gathers, None where that is not certain."""
    row = gathering(table)
    if row is None or not row["n"]:
        return None
    # Over all blocks, as the causes are: those that do not run the op have no time behind it.
    every = row["n"] + row["without_n"]
    time_ns = per_step.of_launches(kind, row["total_ns"], every)
    off = row["total_uncertainty_ns"]
    return {
        "finding": IDLE_AFTER,
        "op": row["op"],
        "per_step_ns": time_ns,
        "per_step_uncertainty_ns": None if off is None else per_step.bound(kind, off, every),
        "share_of_idle": time_ns / whole_ns if whole_ns else None,
        "share_of_step": per_step.share(time_ns),
        "launches": [
            {
                "kind": kind,
                "per_step": per_step.launches[kind] / per_step.steps,
                "idle_mean_ns": rounded(row["total_ns"], every),
                "idle_mean_uncertainty_ns": None if off is None else -(-off // every),
            }
        ],
        "share_of_launch_idle": row["share"],
        "share_of_launch_time": row["share_of_time"],
        "shown_in": ["idle"],
        "look_at": "ops",
    }


def _if_gone(row: Row, gain: Gain | None) -> Row:
    if gain is None:
        return {}
    return {
        "gone_saves_ns": gain.saved_ns,
        "gone_saves_uncertainty_ns": gain.uncertainty_ns,
        "shown_in": [*row["shown_in"], "what_ifs"],
    }


def _change(found: Row, per_step: PerStep) -> Row:
    gain: Gain = found["gain"]
    return {
        "finding": WHAT_IF,
        **{name: found[name] for name in ("place", "how", "target")},
        "per_step_ns": gain.saved_ns,
        "per_step_uncertainty_ns": gain.uncertainty_ns,
        "share_of_step": per_step.share(gain.saved_ns),
        "shown_in": ["what_ifs"],
        "look_at": "critical_path",
    }
