"""One rank's journal while it is recorded: its chunks, its totals, and what it lost."""

from __future__ import annotations

from typing import Any

from musetrace.record.loss_ledger import LostLaunches
from musetrace.store.frame import ChunkType, payload_limit
from musetrace.store.journal_writer import ChunkBuffer, JournalWriter
from musetrace.store.payloads import Clock, encode_json

_MAX_REPORT_CHARS = 4096


class RankJournal:
    """Writes chunks and counts them. After an error it only counts what is lost, and ``failure`` says why."""

    def __init__(self, writer: JournalWriter, stamp_capacity_bytes: int, rank: int = 0) -> None:
        """Allocates the memory of a stamp chunk, so that none is allocated later."""
        self.writer = writer
        self.rank = rank
        self.stamp_buffer = ChunkBuffer(stamp_capacity_bytes)
        self.failure: str | None = None
        self.launches = 0
        self.steps = 0
        self.lost_launches = 0

    def meta(self, data: dict[str, Any]) -> None:
        """Write what the rank is."""
        self._write(ChunkType.META, data)

    def clock(self, anchor: Clock) -> None:
        """Write an anchor of the device clock."""
        self._write(ChunkType.CLOCK, anchor.to_json())

    def launch(self, length: int) -> bool:
        """Write ``length`` bytes of ``stamp_buffer`` as a launch's stamps; False when it is lost."""
        stored = self.failure is None and self._guard(
            lambda: self.writer.write_buffer(ChunkType.STAMPS, self.stamp_buffer, length)
        )
        self.launches += stored
        return stored

    def step(self, data: dict[str, Any]) -> None:
        """Write a step's host times."""
        self.steps += self._write(ChunkType.STEP, data)

    def report(self, data: dict[str, Any]) -> None:
        """Write a wait report; one that JSON cannot hold, as text."""
        try:
            fits = len(encode_json(data)) <= payload_limit(ChunkType.REPORT)
        except (TypeError, ValueError):
            fits = False
        self._write(ChunkType.REPORT, data if fits else {"text": repr(data)[:_MAX_REPORT_CHARS]})

    def lose(self, lost: LostLaunches) -> None:
        """Count lost launches, and write that down if the journal still can."""
        self.lost_launches += lost.launches
        self._write(ChunkType.LOSS, vars(lost))

    def end(self, reason: str) -> None:
        """Write the totals."""
        totals = {
            "reason": reason,
            "chunks": self.writer.chunks,
            "stamp_chunks": self.launches,
            "launches": self.launches,
            "steps": self.steps,
            "lost_launches": self.lost_launches,
        }
        self._write(ChunkType.END, totals)

    def _write(self, kind: ChunkType, data: dict[str, Any]) -> bool:
        return self.failure is None and self._guard(lambda: self.writer.write(kind, encode_json(data)))

    def _guard(self, write: Any) -> bool:
        try:
            stored = bool(write())
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}"
            raise
        if not stored:
            failed = self.writer.failed
            self.failure = f"cannot write {self.writer.path}: {failed.strerror if failed else 'closed'}"
        return stored
