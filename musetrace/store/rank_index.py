"""Indexes one journal: reads it once, in a stream, and writes the rank's three Arrow files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from musetrace.store import tables
from musetrace.store.alignment import RankClock
from musetrace.store.arrow_file import BatchWriter
from musetrace.store.byte_source import FileSource
from musetrace.store.decode import PairMap, decode_launch
from musetrace.store.journal_files import JournalFile
from musetrace.store.journal_reader import JournalReader, Record
from musetrace.store.losses import DAMAGED, no_losses
from musetrace.store.payloads import Clock, Loss, Meta, Report, Step
from musetrace.store.stamp_batch import StampBatch

TABLES = ("spans", "launches", "steps")
# Rows of the steps table are gathered into batches of this many.
_STEPS_PER_BATCH = 4096
_MAX_REPORTS = 100
_MAX_REASONS = 100
_MAX_STEPS_WITH_LOSSES = 1000
_OTHER_REASONS = "other_reasons"
# Of one journal, which may have been recorded for days: beyond, every second one goes.
_MOST_ANCHORS = 4096


def table_path(folder: Path, table: str, rank: int) -> Path:
    """Where a rank's table stands in a run's folder."""
    return folder / table / f"rank-{rank:04d}.arrow"


@dataclass
class RankIndex:
    """What was found in one journal, beside its tables."""

    meta: Meta | None = None
    anchors: list[Clock] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    losses: dict[str, int] = field(default_factory=no_losses)
    loss_reasons: dict[str, int] = field(default_factory=dict)
    lost_by_step: dict[int, int] = field(default_factory=dict)
    blocks: int = 0
    steps: int = 0
    launches: int = 0
    spans: int = 0
    verdict: str = DAMAGED
    end_reason: str | None = None
    notes: list[str] = field(default_factory=list)
    bytes: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def to_json(self) -> dict[str, Any]:
        """The rank's entry of the manifest."""
        meta = self.meta.data if self.meta else {}
        return {
            "bytes": self.bytes,
            "verdict": self.verdict,
            "end_reason": self.end_reason,
            "notes": self.notes,
            "losses": self.losses,
            **({"loss_reasons": self.loss_reasons} if self.loss_reasons else {}),
            # Of the first steps that lost some: what is not in here has no step that is known.
            **(
                {"lost_by_step": {str(of): n for of, n in self.lost_by_step.items()}}
                if self.lost_by_step
                else {}
            ),
            "blocks": self.blocks,
            "steps": self.steps,
            "launches": self.launches,
            "spans": self.spans,
            "anchors": [anchor.to_json() for anchor in self.anchors[:1] + self.anchors[1:][-1:]],
            "host": meta.get("host"),
            "pid": meta.get("pid"),
        }

    def clock_of(self, rank: int) -> RankClock:
        """What this rank's journal says of its clock."""
        meta = self.meta.data if self.meta else {}
        return RankClock(rank, meta, tuple(self.anchors), self.first_ns, self.last_ns)


def index_journal(journal: JournalFile, folder: Path) -> RankIndex:
    """Write the tables of a journal into ``folder``. Memory is bounded by one step."""
    try:
        return _index(journal, folder, wide=False)
    except tables.StepTooLongError:
        return _index(journal, folder, wide=True)


def _index(journal: JournalFile, folder: Path, wide: bool) -> RankIndex:
    spans_schema = tables.spans_schema(wide, _has_instances(journal))
    with FileSource(journal.path) as source, _writers(folder, journal.rank, spans_schema) as writers:
        reader = JournalReader(source)
        indexer = _Indexer(reader, writers, spans_schema)
        for record in reader.records():
            indexer.take(record)
        index = indexer.finish()
        index.bytes = source.size
        return index


def _has_instances(journal: JournalFile) -> bool:
    """Whether the job table, in the first chunk of a sound journal, has iterations or payloads."""
    with FileSource(journal.path) as source:
        first = next(JournalReader(source).records(), None)
    return isinstance(first, Meta) and first.job_table is not None and first.job_table.has_instances


@contextmanager
def _writers(folder: Path, rank: int, spans_schema: pa.Schema) -> Iterator[dict[str, BatchWriter]]:
    schemas = (spans_schema, tables.LAUNCHES, tables.STEPS)
    paths = [table_path(folder, table, rank) for table in TABLES]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
    with (
        BatchWriter(paths[0], schemas[0]) as spans,
        BatchWriter(paths[1], schemas[1]) as launches,
        BatchWriter(paths[2], schemas[2]) as steps,
    ):
        yield dict(zip(TABLES, (spans, launches, steps), strict=True))


class _Indexer:
    """Takes the records of a journal in order and writes each step when the next one begins."""

    def __init__(
        self, reader: JournalReader, writers: dict[str, BatchWriter], spans_schema: pa.Schema
    ) -> None:
        self._reader = reader
        self._writers = writers
        self._spans_schema = spans_schema
        self._index = RankIndex()
        self._pairs: dict[tuple[int, int], PairMap] = {}
        self._step: tables.StepBatch | None = None
        self._step_rows: list[dict[str, Any]] = []

    def take(self, record: Record) -> None:
        """One record of the journal."""
        if isinstance(record, StampBatch):
            self._take_launch(record)
        elif isinstance(record, Step):
            self._take_step(record)
        elif isinstance(record, Loss):
            self._take_loss(record)
        elif isinstance(record, Clock):
            self._index.anchors.append(record)
            if len(self._index.anchors) > _MOST_ANCHORS:
                del self._index.anchors[1:-1:2]
        elif isinstance(record, Report):
            self._index.reports = [*self._index.reports, record.data][:_MAX_REPORTS]
        elif isinstance(record, Meta):
            self._take_meta(record)

    def finish(self) -> RankIndex:
        """Write what is left and tell what was found; the reader must be exhausted."""
        self._flush_step()
        self._flush_step_rows()
        reader, index = self._reader, self._index
        index.verdict, index.notes = reader.verdict, reader.notes
        index.losses["damaged_chunks"] = reader.damaged_chunks
        index.end_reason = reader.end.reason if reader.end else None
        return index

    def _take_meta(self, meta: Meta) -> None:
        if self._index.meta is not None or self._step is not None:
            self._reader.reject("it has a META chunk in the middle")
            return
        self._index.meta = meta
        self._index.blocks = meta.blocks
        if meta.job_table is None:
            self._reader.reject("its job table is not usable: jobs are shown by number")

    def _take_launch(self, batch: StampBatch) -> None:
        step = self._at_step(batch.launch.step)
        pairs = self._pairs_of(batch)
        anchor = self._index.anchors[-1] if self._index.anchors else None
        name = f"launch {batch.launch.launch} of step {batch.launch.step}"
        if step is None:
            self._reader.reject(f"{name} comes after a later step")
        elif not step.add(decode_launch(batch, pairs, anchor)):
            self._reader.reject(f"{name} is there twice")
        self._index.blocks = max(self._index.blocks, len(batch.block))

    def _pairs_of(self, batch: StampBatch) -> PairMap:
        table = self._index.meta.job_table if self._index.meta else None
        width, kernel = batch.slots.shape[1] // 2, batch.launch.kernel
        # All kernels that there are not are one, so that a damaged journal cannot ask for one map a launch.
        kernel = kernel if table is not None and table.has_kernel(kernel) else -1
        if (kernel, width) not in self._pairs:
            self._pairs[kernel, width] = PairMap(table, width, kernel)
        return self._pairs[kernel, width]

    def _take_loss(self, loss: Loss) -> None:
        index = self._index
        index.losses["lost_launches"] += loss.launches
        if loss.step in index.lost_by_step or len(index.lost_by_step) < _MAX_STEPS_WITH_LOSSES:
            index.lost_by_step[loss.step] = index.lost_by_step.get(loss.step, 0) + loss.launches
        known = loss.reason in index.loss_reasons or len(index.loss_reasons) < _MAX_REASONS
        reason = loss.reason if known else _OTHER_REASONS
        index.loss_reasons[reason] = index.loss_reasons.get(reason, 0) + loss.launches

    def _take_step(self, record: Step) -> None:
        step = self._at_step(record.step)
        if step is None or step.host is not None:
            self._reader.reject(f"step {record.step} ends twice or after a later step")
        else:
            step.host = record

    def _at_step(self, number: int) -> tables.StepBatch | None:
        """The batch of a step, which becomes the current one; None for a step that is over."""
        if self._step is None or number > self._step.step:
            self._flush_step()
            self._step = tables.StepBatch(number)
        return self._step if number == self._step.step else None

    def _flush_step(self) -> None:
        step, self._step = self._step, None
        if step is None:
            return
        spans = step.spans_batch(self._spans_schema)
        self._writers["spans"].write(spans)
        self._writers["launches"].write(step.launches_batch())
        self._step_rows.append(step.step_row())
        self._note_bounds(*step.bounds())
        if len(self._step_rows) == _STEPS_PER_BATCH:
            self._flush_step_rows()
        step.count(self._index.losses)
        self._index.steps += 1
        self._index.launches += len(step.launches)
        self._index.spans += spans.num_rows

    def _note_bounds(self, first_ns: int, last_ns: int) -> None:
        if last_ns:
            self._index.first_ns = min(self._index.first_ns or first_ns, first_ns)
            self._index.last_ns = max(self._index.last_ns, last_ns)

    def _flush_step_rows(self) -> None:
        if self._step_rows:
            self._writers["steps"].write(pa.RecordBatch.from_pylist(self._step_rows, schema=tables.STEPS))
        self._step_rows = []
