"""How fast each job, op and phase of a launch moves its bytes, beside what the device can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.engines.moved_parts import JOB, LAUNCH, OP, PHASE, READS, Part
from musetrace.analysis.engines.read_ceiling import ReadCeiling, read_ceiling
from musetrace.analysis.engines.roofline_times import Parts, PartTimes, state_of, times_of
from musetrace.analysis.kept_sums.key_sums import KeySums
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.kept_sums.value_counts import ValueCounts
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection, StepSpans
from musetrace.job_bytes import RunBytes

BYTES_NOTE, CEILING_NOTE, PARTIAL_LAUNCHES = b"bytes_note", b"ceiling_note", b"partial_launches"

_FIELDS = [
    ("part", pa.string()),
    ("kind", pa.string()),
    ("name", pa.string()),
    ("op", pa.string()),
    ("way", pa.string()),
    ("layers", pa.list_(pa.int32())),
    ("n", pa.uint64()),
    ("blocks", pa.uint32()),
    ("bytes", pa.int64()),
    ("bytes_low", pa.int64()),
    ("bytes_high", pa.int64()),
    ("bytes_late", pa.int64()),
    ("bytes_basis", pa.string()),
    ("unknown_jobs", pa.list_(pa.string())),
    ("elapsed_p50_ns", pa.int64()),
    ("covered_p10_ns", pa.int64()),
    ("covered_p50_ns", pa.int64()),
    ("covered_p90_ns", pa.int64()),
    ("covered_uncertainty_ns", pa.int64()),
    ("block_sum_p50_ns", pa.int64()),
    ("bandwidth_gb_s", pa.float64()),
    ("bandwidth_low_gb_s", pa.float64()),
    ("bandwidth_high_gb_s", pa.float64()),
    ("ceiling_gb_s", pa.float64()),
    ("ceiling_share", pa.float64()),
    ("ceiling_share_low", pa.float64()),
    ("ceiling_share_high", pa.float64()),
]


def roofline(
    run: RunLike,
    *,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    moved: RunBytes | None = None,
) -> pa.Table:
    """One row per part of a launch that moves bytes: launches, phases, ops, then jobs, each as they come.

    The bytes are those of all blocks of one rank in one launch (``musetrace.job_bytes``), as the run keeps
    them, or ``moved``. Layers of a kind that move different bytes have rows of their own, with their
    ``layers``. ``n`` is the number of launches times ranks; launches that not all blocks have reported are
    left out (metadata ``partial_launches``). ``part`` is

    * ``job``: a job; ``op``: all of an op's jobs that read (load, prefetch, compute);
    * ``phase``: from one stop between ranks (``stops``) to the next, each to the last block's end of it;
      ``name`` is the stop that it ends with, or ``end``. Its bytes are what its ops read, whenever that was:
      what was loaded ahead of the phase counts in it. A launch without stops has none;
    * ``launch``: the whole launch and all that it reads.

    ``elapsed`` is from the first begin of the part's spans in any block to the last end. ``covered`` is the
    part of it in which at least one block is in one of them, and ``block_sum`` the same of each block alone,
    added up over ``blocks``. For a phase or a launch both are its length, and there is no ``block_sum``.
    Percentiles are nearest-rank over the ``n``; ``covered_uncertainty_ns`` is a tick for each piece of the
    union that has most.

    ``bandwidth_gb_s`` is ``bytes`` by ``covered_p50_ns``: bytes per ns. Its low and high take the bounds of
    both, the low one without the ``bytes_late`` that may have arrived behind the end of the spans; null where
    the time may be none, or the tick is not known. ``unknown_jobs`` move bytes that nobody knows: ``bytes``
    is then null, and the low numbers are of the others. ``ceiling_share`` is the share of what all SMs read
    at most (``read_ceiling``), from the probe that is kept with the run; null for sends, and where there is
    none (metadata ``ceiling_note``). Metadata ``bytes_note``: why there are no rows.

    Meaning: how far an op is from what memory allows. It lies where the ring is full: the loader waits inside
    its span, so back-pressure lengthens it, and a low bandwidth may be the fault of who takes the data. It
    lies where what is read is in L2 already, and where ranks share a device, whose ceiling they share too. A
    span that ends when its last copy is issued says little of a job that has not much more than that on its
    way: look at the low bandwidth. Spans with a flag are left out (metadata ``ignored``), which shortens
    their part.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    declared = RunBytes.of_manifest(run.manifest)
    question = ROOFLINE
    if moved is not None and moved != declared:  # what the run keeps is about what it declares
        accumulate, finish = (partial(one, moved=moved) for one in (_accumulate, _finish))
        question = replace(ROOFLINE, accumulate=accumulate, finish=finish, is_kept=False)
    return ask(run, question, Selection(layer_kind, rank, step))


def _accumulate(run: RunLike, spans: Sequence[StepSpans], moved: RunBytes | None = None) -> list[State]:
    moved = RunBytes.of_manifest(run.manifest) if moved is None else moved
    parts = Parts(run.job_table, moved)
    return [state_of(one, parts, run.blocks) for one in spans]


def _finish(
    run: RunLike, selection: Selection, state: State, counted: Counted, moved: RunBytes | None = None
) -> pa.Table:
    moved = RunBytes.of_manifest(run.manifest) if moved is None else moved
    ceiling = read_ceiling(run.manifest)
    times = times_of(state, Parts(run.job_table, moved))
    order = {part: at for at, part in enumerate((LAUNCH, PHASE, OP, JOB))}
    rows = [
        _row(part, times[part], tick_ns(run), ceiling)
        for part in sorted(times, key=lambda part: order[part.part])
    ]
    table = answer(run, _FIELDS, rows, counted)
    notes = {
        BYTES_NOTE: moved.note.encode(),
        CEILING_NOTE: ceiling.note.encode(),
        PARTIAL_LAUNCHES: str(state.number("partial", 0)).encode(),
    }
    return table.replace_schema_metadata({**table.schema.metadata, **notes})


def _row(part: Part, times: PartTimes, tick: int | None, ceiling: ReadCeiling) -> dict[str, object]:
    covered = _counts(times.covered)
    p10, p50, p90 = covered.nearest_rank()
    off = None if tick is None else tick * times.most_pieces
    shortest = None if off is None or p50 is None or p50 <= off else p50 - off
    longest = None if off is None or p50 is None or p50 + off == 0 else p50 + off
    rate, high = _ratio(part.expected, p50), _ratio(part.high, shortest)
    low = _ratio(max(part.low - part.late, 0) if part.low else None, longest)
    reads = part.way == READS
    return {
        "part": part.part,
        "kind": part.kind,
        "name": part.name,
        "op": part.op,
        "way": part.way,
        "layers": sorted(times.layers),
        "n": covered.n,
        "blocks": times.blocks,
        "bytes": part.expected,
        "bytes_low": part.low,
        "bytes_high": part.high,
        "bytes_late": part.late,
        "bytes_basis": part.basis,
        "unknown_jobs": list(part.unknown),
        "elapsed_p50_ns": _counts(times.elapsed).nearest_rank((50,))[0] if times.elapsed else p50,
        "covered_p10_ns": p10,
        "covered_p50_ns": p50,
        "covered_p90_ns": p90,
        "covered_uncertainty_ns": off,
        "block_sum_p50_ns": _counts(times.block_sum).nearest_rank((50,))[0] if times.block_sum else None,
        "bandwidth_gb_s": rate,
        "bandwidth_low_gb_s": low,
        "bandwidth_high_gb_s": high,
        "ceiling_gb_s": ceiling.gb_s if reads else None,
        "ceiling_share": _ratio(rate, ceiling.gb_s if reads else None),
        "ceiling_share_low": _ratio(low, ceiling.p90_gb_s if reads else None),
        "ceiling_share_high": _ratio(high, ceiling.p10_gb_s if reads else None),
    }


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _counts(of: Sequence[KeySums]) -> ValueCounts:
    return ValueCounts.of(KeySums.merged(of))


ROOFLINE = Question("roofline", 1, _accumulate, _finish)
