"""What the reader says about journals that are whole, cut, hurt, old, new, or no journals at all."""

from __future__ import annotations

import dataclasses
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.errors import NotARunError, TraceFileError, UnsupportedVersionError
from musetrace.store import frame
from musetrace.store.byte_source import BytesSource, FileSource
from musetrace.store.frame import ChunkType
from musetrace.store.journal_reader import JournalReader
from musetrace.store.payloads import encode_json
from musetrace.store.stamp_batch import StampBatch
from tests.builders import RECORDING_ID, JournalBuilder, LaunchStamps, small_table

T0 = 10**12


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Two steps of two launches, one lost launch, a report."""
    builder = JournalBuilder(tmp_path_factory.mktemp("run"), small_table(), blocks=2, anchor_ns=T0)
    for step in range(2):
        for launch in range(2):
            builder.launch(launch_of(step, launch))
        builder.step(step, T0, T0 + 10, 16)
    builder.loss(1, 2, 3)
    builder.json(ChunkType.REPORT, {"site": 3, "want": 2, "got": 1})
    return builder.end().read_bytes()


def launch_of(step: int, launch: int) -> LaunchStamps:
    begin = T0 + 1000 * step + 100 * launch
    slots = np.arange(32, dtype=np.uint64).reshape(2, 16) + np.uint64(begin)
    return LaunchStamps(step, launch, slots, np.full(2, begin, dtype=np.uint64), epoch=1 + 2 * step + launch)


def read(data: bytes) -> tuple[JournalReader, list[object]]:
    reader = JournalReader(BytesSource(data))
    return reader, list(reader.records())


def chunk_offsets(data: bytes) -> list[int]:
    """Offsets of the chunks of a whole journal, and its end."""
    offsets, at = [], 36
    while at < len(data):
        offsets.append(at)
        at += 24 + struct.unpack_from("<Q", data, at + 8)[0]
    return [*offsets, at]


def forge(data: bytes, kind: int, payload: bytes, seq: int) -> bytes:
    """A chunk that fits into this recording."""
    return frame.encode_chunk_header(kind, payload, seq, zlib.crc32(data[:32])) + payload


def test_a_whole_journal_is_complete_and_all_of_it_is_read(journal: bytes) -> None:
    reader, records = read(journal)
    assert (reader.verdict, reader.notes, reader.damaged_chunks) == ("complete", [], 0)
    assert [type(record).__name__ for record in records] == [
        "Meta",
        "Clock",
        "StampBatch",
        "StampBatch",
        "Step",
        "StampBatch",
        "StampBatch",
        "Step",
        "Loss",
        "Report",
        "End",
    ]
    assert reader.recording_id == RECORDING_ID.hex()


def test_every_cut_keeps_all_chunks_before_it_and_is_incomplete(journal: bytes) -> None:
    offsets = chunk_offsets(journal)
    _, whole = read(journal)
    for length in range(36, len(journal)):
        reader, records = read(journal[:length])
        expected = sum(end <= length for end in offsets[1:])
        assert len(records) == expected, length
        assert reader.verdict == "incomplete", length
        assert reader.notes, length
        assert [as_text(record) for record in records] == [as_text(record) for record in whole[:expected]]


def test_a_cut_inside_the_file_header_is_refused(journal: bytes) -> None:
    for length in range(36):
        with pytest.raises(NotARunError, match="killed at its start"):
            JournalReader(BytesSource(journal[:length]))


def as_text(record: object) -> str:
    if isinstance(record, StampBatch):
        return repr({k: np.asarray(v).tolist() for k, v in vars(record).items() if k != "launch"}) + repr(
            record.launch
        )
    return repr(record)


def test_every_flipped_bit_is_damage_and_costs_one_chunk(journal: bytes) -> None:
    for bit in range(8 * 36, 8 * len(journal), 5):
        flipped = bytearray(journal)
        flipped[bit // 8] ^= 1 << bit % 8
        reader, records = read(bytes(flipped))
        assert reader.verdict == "damaged", bit
        assert reader.damaged_chunks == 1
        assert len(records) == 10


def test_a_flip_in_the_file_header_is_refused_or_costs_nothing_but_the_verdict(journal: bytes) -> None:
    for bit in range(8 * 36):
        flipped = bytearray(journal)
        flipped[bit // 8] ^= 1 << bit % 8
        if bit < 8 * 8:
            with pytest.raises(NotARunError):
                JournalReader(BytesSource(bytes(flipped)))
            continue
        reader, records = read(bytes(flipped))
        assert reader.verdict == "damaged"
        assert len(records) == 11


@pytest.mark.parametrize("lost", range(1, 10))
def test_a_lost_chunk_is_counted_and_the_rest_is_read(journal: bytes, lost: int) -> None:
    offsets = chunk_offsets(journal)
    reader, records = read(journal[: offsets[lost]] + journal[offsets[lost + 1] :])
    assert (reader.verdict, reader.damaged_chunks, len(records)) == ("damaged", 1, 10)


def test_swapped_doubled_and_foreign_chunks_are_damage(journal: bytes, tmp_path: Path) -> None:
    offsets = chunk_offsets(journal)
    parts = [journal[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]
    head = journal[:36]
    swapped = head + b"".join([*parts[:3], parts[4], parts[3], *parts[5:]])
    doubled = head + b"".join([*parts[:4], parts[3], *parts[4:]])
    other = JournalBuilder(tmp_path, small_table(), blocks=2, recording_id=b"another one here")
    for _ in range(2):
        other.launch(launch_of(7, 7))
    foreign_data = other.end().read_bytes()
    foreign = chunk_offsets(foreign_data)
    spliced = head + b"".join([*parts[:3], foreign_data[foreign[3] : foreign[4]], *parts[4:]])
    for mutant in (swapped, doubled, spliced, journal + journal[36:], journal + b"\0"):
        reader, records = read(mutant)
        assert reader.verdict == "damaged"
        steps = [record.launch.step for record in records if isinstance(record, StampBatch)]
        assert set(steps) <= {0, 1}


def test_nothing_may_follow_the_end_chunk_not_even_a_begun_chunk(journal: bytes) -> None:
    for tail in (b"M", b"MCHK", b"MCHK" + struct.pack("<IQI", 4, 1000, 11), journal[36:]):
        reader, records = read(journal + tail)
        assert (reader.verdict, reader.damaged_chunks, len(records)) == ("damaged", 1, 11)
        assert "follow its end chunk" in reader.notes[0]


def test_totals_that_do_not_fit_are_damage(tmp_path: Path) -> None:
    for number, totals in enumerate(
        ({"chunks": 3}, {"stamp_chunks": 0}, {"launches": 9}, {"steps": 2}, {"lost_launches": 1})
    ):
        builder = JournalBuilder(tmp_path / str(number), small_table(), blocks=2, anchor_ns=T0)
        builder.launch(launch_of(0, 0))
        builder.step(0)
        reader, _ = read(builder.end(**totals).read_bytes())
        assert reader.verdict == "damaged"
        assert "end chunk tells" in reader.notes[0]


def test_a_newer_minor_version_is_read_and_unknown_chunks_are_counted(journal: bytes) -> None:
    header = frame.encode_file_header(RECORDING_ID, minor=7)
    data = header
    payloads = [
        journal[a:b] for a, b in zip(chunk_offsets(journal), chunk_offsets(journal)[1:], strict=False)
    ]
    new = [(77, b"what the future writes")]
    chunks = [(struct.unpack_from("<I", part, 4)[0], part[24:]) for part in payloads[:-1]] + new
    totals = {
        "reason": "closed",
        "chunks": 11,
        "stamp_chunks": 4,
        "launches": 4,
        "steps": 2,
        "lost_launches": 3,
    }
    for seq, (kind, payload) in enumerate([*chunks, (ChunkType.END, encode_json(totals))]):
        data += frame.encode_chunk_header(kind, payload, seq, zlib.crc32(header[:32])) + payload
    reader, records = read(data)
    assert (reader.verdict, reader.unknown_chunks, len(records)) == ("complete", 1, 11)
    assert "newer musetrace" in reader.notes[0]


@pytest.mark.parametrize("major", [0, 2, 65535])
def test_another_major_version_is_refused_by_name(journal: bytes, major: int) -> None:
    data = frame.encode_file_header(RECORDING_ID, major=major, minor=3) + journal[36:]
    with pytest.raises(UnsupportedVersionError, match=rf"format {major}\.3.*reads 1\.x"):
        JournalReader(BytesSource(data))


@pytest.mark.parametrize(
    "content", [b"", b"hello, world\n" * 9, b"PK\x03\x04" + bytes(100), bytes(5000), b"MUSETRC\r" + bytes(99)]
)
def test_what_is_no_journal_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(NotARunError) as refusal:
        JournalReader(BytesSource(content, "some file"))
    assert "some file" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_fifo_a_device_and_a_folder_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.mtj")
    for path in (tmp_path / "fifo.mtj", Path("/dev/zero"), tmp_path):
        with pytest.raises(NotARunError, match="regular file"):
            FileSource(path)
    with pytest.raises(TraceFileError, match="No such file"):
        FileSource(tmp_path / "nothing.mtj")


@given(
    st.sampled_from([0, 1, 23, 2**16, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 24, 2**64 - 1]),
    st.integers(0, 10),
)
def test_no_length_makes_the_reader_allocate_or_hang(journal: bytes, length: int, chunk: int) -> None:
    at = chunk_offsets(journal)[chunk]
    data = journal[: at + 8] + struct.pack("<Q", length) + journal[at + 16 :]
    reader, records = read(data)
    assert reader.verdict == "damaged"
    assert len(records) == 10


def test_a_file_of_magics_costs_bounded_time(journal: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musetrace.store.limits.RESYNC_BYTES", 1 << 16)
    fake = frame.CHUNK_MAGIC_BYTES + struct.pack("<IQII", ChunkType.STAMPS, 1 << 18, 50, 0)
    data = journal[:36] + fake * 20_000
    source = CountingSource(data)
    reader = JournalReader(source)
    assert list(reader.records()) == []
    assert reader.verdict == "damaged"
    assert source.bytes_read < 6 * len(data) + (1 << 22)


class CountingSource(BytesSource):
    """Counts the bytes that are read."""

    bytes_read = 0

    def read_at(self, offset: int, length: int) -> bytes:
        data = super().read_at(offset, length)
        self.bytes_read += len(data)
        return data


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (ChunkType.STEP, b"{}"),
        (ChunkType.STEP, b"[1]"),
        (ChunkType.STEP, b'{"step":1e999,"host_begin_ns":0,"host_end_ns":0,"tokens":0}'),
        (ChunkType.STEP, b'{"step":-1,"host_begin_ns":0,"host_end_ns":0,"tokens":0}'),
        (ChunkType.STEP, b'{"step":NaN,"host_begin_ns":0,"host_end_ns":0,"tokens":0}'),
        (ChunkType.STEP, b"[" * 60_000),
        (ChunkType.STEP, b"9" * 6000),
        (ChunkType.STEP, b"\xff\xfe"),
        (ChunkType.LOSS, b'{"step":1,"launch":1,"launches":0,"reason":"x"}'),
        (ChunkType.CLOCK, b'{"device_ns":1,"host_monotonic_ns":1}'),
        (ChunkType.REPORT, b'"text"'),
        (ChunkType.STAMPS, b"not arrow"),
        (ChunkType.META, b'{"format":"musetrace"}'),
    ],
)
def test_a_payload_that_lies_about_its_type_is_damage_with_a_note(
    journal: bytes, kind: ChunkType, payload: bytes
) -> None:
    end = chunk_offsets(journal)[-2]
    data = journal[:end] + forge(journal, kind, payload, 10)
    reader, records = read(data)
    assert (reader.verdict, len(records)) == ("damaged", 10)
    assert "chunk 10 at byte" in reader.notes[0]


def test_a_meta_chunk_of_another_recording_is_damage(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path, small_table(), blocks=2, meta={"recording_id": "ab" * 16})
    reader, _ = read(builder.end().read_bytes())
    assert reader.verdict == "damaged"
    assert "another recording" in reader.notes[0]


def test_a_file_that_is_being_written_is_told_apart(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path, small_table(), blocks=2)
    with FileSource(builder.writer.path) as source:
        assert source.is_being_written()
    builder.end()
    with FileSource(builder.writer.path) as source:
        assert not source.is_being_written()


def test_records_hold_what_was_written(journal: bytes) -> None:
    _, records = read(journal)
    batch = records[3]
    assert isinstance(batch, StampBatch)
    expected = launch_of(0, 1)
    assert batch.slots.tolist() == expected.slots.tolist()
    assert dataclasses.asdict(batch.launch) == {**expected.info(), "kernel": 0, "dropped_blocks": 0}
