"""How fast each job, op and phase of a launch moves its bytes, beside what the device can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.moved_parts import (
    LAUNCH,
    PHASE,
    READS,
    Part,
    PartsOfLaunch,
    parts_of_launch,
    stops_of,
)
from musetrace.analysis.moved_spans import moved_spans
from musetrace.analysis.read_ceiling import ReadCeiling, read_ceiling
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.selection import (
    Counted,
    LaunchColumns,
    Selection,
    StepSpans,
    spans_by_step,
)
from musetrace.analysis.tally import Tally
from musetrace.job_bytes import RunBytes
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]

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
    moved = RunBytes.of_manifest(run.manifest) if moved is None else moved
    counted, state = Counted(), Roofline(run.job_table, moved)
    launches: dict[int, LaunchColumns] = {}
    for spans in spans_by_step(run, Selection(layer_kind, rank, step), counted):
        for one in spans:
            if one.rank not in launches:
                launches[one.rank] = LaunchColumns.of(run.launches(one.rank))
            state.add(one, launches[one.rank], run.blocks)
    ceiling = read_ceiling(run.manifest)
    table = answer(run, _FIELDS, state.rows(tick_ns(run), ceiling), counted)
    notes = {
        BYTES_NOTE: moved.note.encode(),
        CEILING_NOTE: ceiling.note.encode(),
        PARTIAL_LAUNCHES: str(state.partial).encode(),
    }
    return table.replace_schema_metadata({**table.schema.metadata, **notes})


@dataclass
class _Times:
    """What was measured of one part."""

    layers: set[int] = field(default_factory=set)
    elapsed: Tally = field(default_factory=Tally)
    covered: Tally = field(default_factory=Tally)
    block_sum: Tally = field(default_factory=Tally)
    most_pieces: int = 0
    blocks: int = 0

    def add(self, layers: Ints, covered: Ints, blocks: int, pieces: int = 1) -> None:
        """Count some launches."""
        self.layers.update(layers.tolist())
        self.covered.add(covered)
        self.most_pieces = max(self.most_pieces, pieces)
        self.blocks = max(self.blocks, blocks)

    def merge(self, other: _Times) -> None:
        """Count what another has counted."""
        self.layers |= other.layers
        for mine, of in ((self.elapsed, other.elapsed), (self.covered, other.covered)):
            mine.merge(of)
        self.block_sum.merge(other.block_sum)
        self.most_pieces = max(self.most_pieces, other.most_pieces)
        self.blocks = max(self.blocks, other.blocks)


@dataclass
class Roofline:
    """Times of the parts of launches, as they come; ``partial`` launches are left out.

    Those of two sets of launches are put together by :meth:`merge`.
    """

    table: JobTable
    moved: RunBytes
    partial: int = 0
    times: dict[Part, _Times] = field(default_factory=dict)
    _parts: dict[tuple[int, tuple[int, ...]], PartsOfLaunch] = field(default_factory=dict)

    def add(self, spans: StepSpans, launches: LaunchColumns, blocks: int) -> None:
        """One (rank, step); ``launches`` are all of the rank's."""
        places, edges = _places(launches, spans), _stop_ends(spans, self.table)
        whole = spans.launch_blocks >= spans.launch_grid
        of_launch: list[PartsOfLaunch | None] = []
        for at, place in enumerate(places.tolist()):
            stops = tuple(np.flatnonzero(edges[:, at] >= 0).tolist())
            parts = self._parts_of(str(launches.kind[place]), int(launches.layer[place]), stops)
            self.partial += parts is not None and not whole[at]
            of_launch.append(parts if whole[at] else None)
        layers = launches.layer[places]
        moving = self._moving(spans)
        for level in ("jobs", "ops"):
            self._add_spans(moving, of_launch, layers, blocks, level)
        self._add_phases(spans, of_launch, layers, edges)

    def merge(self, other: Roofline) -> None:
        """Count what another has counted of other launches."""
        self.partial += other.partial
        for part, times in other.times.items():
            self.times.setdefault(part, _Times()).merge(times)

    def _moving(self, spans: StepSpans) -> StepSpans:
        """The spans of jobs that move bytes in some launch."""
        names = {name for one in self.moved.launches for name in (*one.jobs, *one.unknown)}
        return _of_jobs(spans, np.array([job.name in names for job in self.table.jobs], dtype=np.bool_))

    def _parts_of(self, kind: str, layer: int, stops: tuple[int, ...]) -> PartsOfLaunch | None:
        found = self.moved.of(kind, layer)
        if found is None:
            return None
        key = id(found), stops
        if key not in self._parts:
            names = stops_of(self.table)
            self._parts[key] = parts_of_launch(self.table, found, [names[stop] for stop in stops])
        return self._parts[key]

    def _add_spans(
        self,
        spans: StepSpans,
        of_launch: Sequence[PartsOfLaunch | None],
        layers: Ints,
        blocks: int,
        level: str,
    ) -> None:
        """The parts that are some jobs: of the level ``jobs``, or ``ops``."""
        numbers: dict[Part, int] = {}
        part_of = np.full((len(of_launch), len(self.table.jobs)), -1, dtype=np.int64)
        for launch, parts in enumerate(of_launch):
            for part, jobs in getattr(parts, level) if parts is not None else ():
                part_of[launch, list(jobs)] = numbers.setdefault(part, len(numbers))
        found = moved_spans(spans, part_of[spans.launch, spans.job], blocks)
        for part, number in numbers.items():
            mine = found.part == number
            if not mine.any():
                continue
            times = self.times.setdefault(part, _Times())
            times.add(
                layers[found.launch[mine]],
                found.covered[mine],
                int(found.blocks[mine].max()),
                int(found.pieces[mine].max()),
            )
            times.elapsed.add(found.elapsed[mine])
            times.block_sum.add(found.block_sum[mine])

    def _add_phases(
        self, spans: StepSpans, of_launch: Sequence[PartsOfLaunch | None], layers: Ints, edges: Ints
    ) -> None:
        """The phases of each launch, and the launch itself."""
        for launch, parts in enumerate(of_launch):
            if parts is None:
                continue
            wall = int(spans.launch_end[launch] - spans.launch_begin[launch])
            ends = edges[edges[:, launch] >= 0, launch]
            lengths: list[tuple[Part | None, int]] = [(parts.launch, wall)]
            if len(ends):
                of_phases = np.diff(np.maximum.accumulate(ends), prepend=0, append=wall)
                lengths += zip(parts.phases, of_phases.tolist(), strict=True)
            for part, length in lengths:
                if part is not None:
                    times = self.times.setdefault(part, _Times())
                    times.add(layers[[launch]], np.array([length]), int(spans.launch_blocks[launch]))

    def rows(self, tick: int | None, ceiling: ReadCeiling) -> list[dict[str, object]]:
        """The answer's rows."""
        order = {part: at for at, part in enumerate((LAUNCH, PHASE, "op", "job"))}
        parts = sorted(self.times, key=lambda part: order[part.part])
        return [_row(part, self.times[part], tick, ceiling) for part in parts]


def _places(launches: LaunchColumns, spans: StepSpans) -> Ints:
    """The places of a step's launches among all of its rank, which are sorted by step and launch."""
    first = int(np.searchsorted(launches.step, spans.step))
    last = int(np.searchsorted(launches.step, spans.step + 1))
    places: Ints = first + np.searchsorted(launches.launch[first:last], spans.launch_id)
    return places


def _stop_ends(spans: StepSpans, table: JobTable) -> Ints:
    """int64[stops, launches]: when the last block is done with each stop, from the launch's begin, or -1."""
    number = {stop: at for at, stop in enumerate(stops_of(table))}
    stop_of = np.array([number.get(job.op, -1) for job in table.jobs], dtype=np.int64)
    at_stops = _of_jobs(spans, stop_of >= 0)
    launch = at_stops.launch
    wall = spans.launch_end - spans.launch_begin
    ends = np.full((len(number), len(wall)), -1, dtype=np.int64)
    end = np.clip(at_stops.end - spans.launch_begin[launch], 0, wall[launch])
    np.maximum.at(ends, (stop_of[at_stops.job], launch), end)
    return ends


def _of_jobs(spans: StepSpans, wanted: npt.NDArray[np.bool_]) -> StepSpans:
    """Some spans; ``wanted`` is bool[jobs]. Jobs that the table does not have are not wanted."""
    chosen = np.flatnonzero(np.append(wanted, False)[np.minimum(spans.job, len(wanted))])
    columns = ("begin", "end", "job", "launch", "block", "warp", "iteration")
    return replace(spans, **{name: getattr(spans, name)[chosen] for name in columns})


def _row(part: Part, times: _Times, tick: int | None, ceiling: ReadCeiling) -> dict[str, object]:
    p10, p50, p90 = times.covered.nearest_rank()
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
        "n": times.covered.n,
        "blocks": times.blocks,
        "bytes": part.expected,
        "bytes_low": part.low,
        "bytes_high": part.high,
        "bytes_late": part.late,
        "bytes_basis": part.basis,
        "unknown_jobs": list(part.unknown),
        "elapsed_p50_ns": times.elapsed.nearest_rank((50,))[0] if times.elapsed.n else p50,
        "covered_p10_ns": p10,
        "covered_p50_ns": p50,
        "covered_p90_ns": p90,
        "covered_uncertainty_ns": off,
        "block_sum_p50_ns": times.block_sum.nearest_rank((50,))[0],
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
