"""Reads a journal into checked records and says how much of it there is: complete, incomplete or damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from musetrace.store import limits, losses, payloads
from musetrace.store.byte_source import ByteSource
from musetrace.store.frame import ChunkType
from musetrace.store.frame_scanner import Chunk, FrameScanner
from musetrace.store.payloads import Clock, End, Loss, Meta, PayloadError, Report, Step
from musetrace.store.stamp_batch import StampBatch, decode_stamps

Record = Meta | Clock | StampBatch | Step | Loss | Report | End

_PARSERS: dict[int, Callable[[bytes], Record]] = {
    ChunkType.META: payloads.parse_meta,
    ChunkType.CLOCK: payloads.parse_clock,
    ChunkType.STAMPS: decode_stamps,
    ChunkType.STEP: payloads.parse_step,
    ChunkType.LOSS: payloads.parse_loss,
    ChunkType.REPORT: payloads.parse_report,
    ChunkType.END: payloads.parse_end,
}


class JournalReader:
    """One journal, read once from begin to end.

    Memory is bounded by one chunk. ``verdict``, ``notes``, ``damaged_chunks``, ``unknown_chunks`` and ``end``
    are final when :meth:`records` is exhausted.
    """

    def __init__(self, source: ByteSource) -> None:
        """Check the file header. Raises NotARunError or UnsupportedVersionError."""
        self._scanner = FrameScanner(source)
        self._own_notes: list[str] = []
        self._bad_payloads = 0
        self._chunks = 0
        self._stamp_chunks = 0
        self._steps = 0
        self._lost_launches = 0
        self._has_meta = False
        self.unknown_chunks = 0
        self.end: End | None = None

    @property
    def recording_id(self) -> str:
        """The recording's id as 32 hex digits."""
        return self._scanner.header.recording_id.hex()

    def records(self) -> Iterator[Record]:
        """Every record of the journal that can be trusted, in order. To be used once."""
        for chunk in self._scanner:
            record = self._parse(chunk)
            if record is not None:
                self._count(record)
                yield record
            self._chunks += 1
        if not self._has_meta and self._chunks:
            self.reject("its META chunk is missing: jobs are shown by number", chunks=not self.damaged_chunks)

    def reject(self, note: str, chunks: int = 1) -> None:
        """Count the record that was read last as damaged: it does not belong where it stands."""
        self._bad_payloads += chunks
        if len(self._own_notes) < limits.MAX_NOTES:
            self._own_notes.append(note)

    @property
    def damaged_chunks(self) -> int:
        """Chunks that cannot be read or do not belong where they stand."""
        return self._scanner.damaged_chunks + self._bad_payloads

    @property
    def verdict(self) -> str:
        """``complete``, ``incomplete`` (no end chunk: killed, or still being written) or ``damaged``."""
        if self.damaged_chunks:
            return losses.DAMAGED
        return losses.COMPLETE if self._scanner.ended else losses.INCOMPLETE

    @property
    def notes(self) -> list[str]:
        """One sentence for each thing that is wrong or odd."""
        notes = [*self._scanner.notes, *self._own_notes]
        if self._scanner.cut:
            notes.append("it stops inside a chunk")
        if not self._scanner.ended:
            notes.append("it has no end chunk: the recording was killed, or still goes on")
        if self.unknown_chunks:
            notes.append(
                f"{self.unknown_chunks} chunks of unknown types, made by a newer musetrace, were skipped"
            )
        return notes

    def _parse(self, chunk: Chunk) -> Record | None:
        parser = _PARSERS.get(chunk.type)
        if parser is None:
            self.unknown_chunks += 1
            return None
        try:
            return parser(chunk.payload)
        except PayloadError as error:
            self.reject(f"chunk {chunk.seq} at byte {chunk.offset}: {error}")
            return None

    def _count(self, record: Record) -> None:
        if isinstance(record, StampBatch):
            self._stamp_chunks += 1
        elif isinstance(record, Step):
            self._steps += 1
        elif isinstance(record, Loss):
            self._lost_launches += record.launches
        elif isinstance(record, Meta):
            self._has_meta = True
            if record.recording_id != self.recording_id:
                self.reject("its META chunk is of another recording")
        elif isinstance(record, End):
            self.end = record
            self._compare_totals(record)

    def _compare_totals(self, end: End) -> None:
        told = (end.chunks, end.stamp_chunks, end.launches, end.steps, end.lost_launches)
        read = (self._chunks, self._stamp_chunks, self._stamp_chunks, self._steps, self._lost_launches)
        if told != read and not self.damaged_chunks:
            self.reject(
                f"its end chunk tells {told}, but {read} were read (chunks, stamps, launches, steps, lost)"
            )
