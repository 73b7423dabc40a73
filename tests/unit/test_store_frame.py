"""Frames and the writer, against a reader that shares no code with them."""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.errors import RecordError
from musetrace.store import frame
from musetrace.store.frame import ChunkType
from musetrace.store.journal_writer import ChunkBuffer, JournalWriter
from tests import slow_reader

ID = bytes(range(100, 116))


def test_the_slow_crc_is_the_published_one() -> None:
    assert slow_reader.crc32(b"123456789") == 0xCBF43926


@given(st.binary(max_size=300), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_a_chunk_header_is_what_the_format_says(payload: bytes, kind: int, seq: int) -> None:
    file_header = frame.encode_file_header(ID)
    file_crc = slow_reader.crc32(file_header[:32])
    header = frame.encode_chunk_header(kind, payload, seq, file_crc)
    assert header[:4] == b"MCHK"
    assert int.from_bytes(header[4:8], "little") == kind
    assert int.from_bytes(header[8:16], "little") == len(payload)
    assert int.from_bytes(header[16:20], "little") == seq
    expected = slow_reader.crc32(payload, slow_reader.crc32(header[:20], file_crc))
    assert int.from_bytes(header[20:24], "little") == expected


def test_a_file_header_holds_magic_version_and_recording_id() -> None:
    header = frame.encode_file_header(ID)
    assert header[:8] == b"MUSETRC\n"
    assert header[8:12] == b"\x01\x00\x00\x00"
    assert header[16:32] == ID
    assert int.from_bytes(header[32:36], "little") == slow_reader.crc32(header[:32])


@given(st.lists(st.tuples(st.sampled_from(list(ChunkType)), st.binary(max_size=200)), max_size=8))
def test_what_is_written_is_what_an_independent_reader_finds(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[tuple[ChunkType, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "rank-0000.mtj"
    writer = JournalWriter(path, ID)
    for kind, payload in [*chunks, (ChunkType.END, b"{}")]:
        assert writer.write(kind, payload)
    writer.close()
    assert slow_reader.read_chunks(path.read_bytes()) == (ID, [*chunks, (ChunkType.END, b"{}")])


def test_each_chunk_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JournalWriter(tmp_path / "rank-0000.mtj", ID)
    sizes: list[int] = []
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: sizes.append(len(data)) or real_write(fd, data))
    writer.write(ChunkType.STEP, b"x" * 1000)
    buffer = ChunkBuffer(500)
    buffer.payload[:] = b"y" * 500
    writer.write_buffer(ChunkType.STAMPS, buffer, 400)
    writer.close()
    assert sizes == [1024, 424]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JournalWriter(tmp_path / "rank-0000.mtj", ID)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:7]))
    assert writer.write(ChunkType.END, b"0123456789" * 5)
    monkeypatch.undo()
    writer.close()
    _, chunks = slow_reader.read_chunks(writer.path.read_bytes())
    assert chunks == [(ChunkType.END, b"0123456789" * 5)]


def test_after_a_write_error_the_file_ends_with_its_last_whole_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JournalWriter(tmp_path / "rank-0000.mtj", ID)
    assert writer.write(ChunkType.END, b"whole")
    real_write = os.write

    def full_disk(fd: int, data: memoryview) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, data[: len(data) - 10])

    monkeypatch.setattr(os, "write", full_disk)
    assert not writer.write(ChunkType.STEP, b"half" * 20)
    monkeypatch.undo()
    assert not writer.write(ChunkType.STEP, b"never tried again")
    writer.close()
    assert writer.failed is not None
    assert writer.failed.errno == errno.ENOSPC
    _, chunks = slow_reader.read_chunks(writer.path.read_bytes())
    assert chunks == [(ChunkType.END, b"whole")]
    assert writer.chunks == 1


def test_a_journal_is_private_locked_and_never_opened_twice(tmp_path: Path) -> None:
    path = tmp_path / "rank-0000.mtj"
    writer = JournalWriter(path, ID)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with pytest.raises(RecordError, match=r"rank-0000\.mtj.*File exists.*choose another"):
        JournalWriter(path, ID)
    writer.close()
    writer.close()
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_a_closed_journal_is_unlocked_even_where_another_process_holds_it_open(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "rank-0000.mtj", ID)
    inherited = os.dup(writer._fd)
    writer.close()
    with writer.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(inherited)


def test_a_journal_is_never_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "rank-0000.mtj").symlink_to(target)
    with pytest.raises(RecordError):
        JournalWriter(tmp_path / "rank-0000.mtj", ID)
    (tmp_path / "rank-0001.mtj").symlink_to(tmp_path / "nothing")
    with pytest.raises(RecordError):
        JournalWriter(tmp_path / "rank-0001.mtj", ID)
    assert target.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


def test_a_payload_beyond_its_limit_is_refused_before_it_is_written(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "rank-0000.mtj", ID)
    with pytest.raises(RecordError, match="too large"):
        writer.write(ChunkType.STEP, bytes(frame.payload_limit(ChunkType.STEP) + 1))
    writer.close()
    assert writer.path.stat().st_size == 36


def test_zlib_and_the_slow_crc_agree() -> None:
    data = bytes(range(256)) * 3
    assert zlib.crc32(data, 77) == slow_reader.crc32(data, 77)
