"""Rows C2 and C3 of the fault table: mutants of journals, with fixed seeds.

The promise: never a crash, nothing invented, and a verdict of complete only for what is complete.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from musetrace.errors import NotARunError, TraceFileError, UnsupportedVersionError
from musetrace.store import open_run
from musetrace.store.byte_source import BytesSource
from musetrace.store.frame import CHUNK_HEADER_BYTES, FILE_HEADER_BYTES, encode_chunk_header
from musetrace.store.frame_scanner import FrameScanner
from musetrace.store.losses import COMPLETE, DAMAGED, INCOMPLETE
from musetrace.store.payloads import PayloadError
from musetrace.store.stamp_batch import decode_stamps
from tests.builders import JournalBuilder, LaunchStamps, small_table

T0 = 10**12
LAUNCHES = 8
Chunks = list[tuple[int, bytes]]


def make_journal(folder: Path, seed: int, recording_id: bytes) -> bytes:
    """A small journal of two steps."""
    numbers = np.random.default_rng(seed)
    builder = JournalBuilder(folder, small_table(), blocks=2, recording_id=recording_id, anchor_ns=T0)
    for number in range(LAUNCHES):
        begin = T0 + 1000 * number
        slots = numbers.integers(begin, begin + 900, (2, 16)).astype(np.uint64)
        header = np.full(2, begin, dtype=np.uint64)
        builder.launch(LaunchStamps(number // 4, number % 4, slots, header, epoch=number + 1))
        if number % 4 == 3:
            builder.step(number // 4)
    return builder.end().read_bytes()


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A journal and one of another recording."""
    folder = tmp_path_factory.mktemp("journals")
    return make_journal(folder / "a", 1, b"A" * 16), make_journal(folder / "b", 2, b"B" * 16)


def split(data: bytes) -> list[bytes]:
    """The chunks of a whole journal, headers included."""
    parts, at = [], FILE_HEADER_BYTES
    while at < len(data):
        end = at + CHUNK_HEADER_BYTES + struct.unpack_from("<Q", data, at + 8)[0]
        parts.append(data[at:end])
        at = end
    return parts


def scan(data: bytes) -> tuple[str, Chunks]:
    """Verdict and chunks, the verdict of a file that is refused being ``refused``."""
    try:
        scanner = FrameScanner(BytesSource(data))
    except (NotARunError, UnsupportedVersionError):
        return "refused", []
    chunks = [(chunk.type, chunk.payload) for chunk in scanner]
    if scanner.damaged_chunks:
        return DAMAGED, chunks
    return COMPLETE if scanner.ended else INCOMPLETE, chunks


def is_subsequence(part: Chunks, whole: Chunks) -> bool:
    rest = iter(whole)
    return all(chunk in rest for chunk in part)


def flip(data: bytes, dice: random.Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        position = dice.randrange(8 * len(mutant))
        mutant[position // 8] ^= 1 << position % 8
    return bytes(mutant)


def insert(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.randbytes(dice.choice((1, 1, 4, 24, 300))) + data[at:]


def delete(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + data[at + dice.choice((1, 1, 4, 24, 900)) :]


def zero(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    length = min(dice.choice((1, 8, 64, 2000)), len(data) - at)
    return data[:at] + bytes(length) + data[at + length :]


def overwrite(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    noise = dice.randbytes(dice.choice((1, 8, 64)))
    return (data[:at] + noise + data[at + len(noise) :])[: len(data)]


@pytest.mark.parametrize("mutate", [flip, insert, delete, zero, overwrite])
def test_10000_mutants_of_bytes_are_never_silently_wrong(
    journals: tuple[bytes, bytes], mutate: Callable[[bytes, random.Random], bytes]
) -> None:
    original = journals[0]
    _, whole = scan(original)
    dice = random.Random(mutate.__name__)
    lost = []
    for _ in range(10_000):
        mutant = mutate(original, dice)
        verdict, chunks = scan(mutant)
        assert is_subsequence(chunks, whole)
        # Zeros on zeros, or noise on the same noise, leave the file as it was.
        assert (verdict == COMPLETE) == (mutant == original)
        lost.append(len(whole) - len(chunks))
    assert sorted(lost)[len(lost) // 2] <= 3


def duplicate(parts: list[bytes], _: list[bytes], dice: random.Random) -> list[bytes]:
    source, at = dice.randrange(len(parts)), dice.randrange(len(parts) + 1)
    return [*parts[:at], parts[source], *parts[at:]]


def swap(parts: list[bytes], _: list[bytes], dice: random.Random) -> list[bytes]:
    a, b = sorted(dice.sample(range(len(parts)), 2))
    return [*parts[:a], parts[b], *parts[a + 1 : b], parts[a], *parts[b + 1 :]]


def splice(parts: list[bytes], foreign: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(parts))
    return [*parts[:at], foreign[dice.choice((at, dice.randrange(len(foreign))))], *parts[at + 1 :]]


def stale_tail(parts: list[bytes], foreign: list[bytes], dice: random.Random) -> list[bytes]:
    tail = dice.choice((parts, foreign))
    at = dice.randrange(len(tail))
    keep = dice.randrange(1, len(parts) + 1)
    cut = dice.randrange(len(tail[at]))
    return [*parts[:keep], tail[at][cut:], *tail[at + 1 :]]


def drop(parts: list[bytes], _: list[bytes], dice: random.Random) -> list[bytes]:
    at = dice.randrange(len(parts) - 1)
    return [*parts[:at], *parts[at + 1 :]]


@pytest.mark.parametrize("mutate", [duplicate, swap, splice, stale_tail, drop])
def test_2000_mutants_of_whole_chunks_are_damage(
    journals: tuple[bytes, bytes],
    mutate: Callable[[list[bytes], list[bytes], random.Random], list[bytes]],
) -> None:
    original, other = journals
    head, parts, foreign = original[:FILE_HEADER_BYTES], split(original), split(other)
    _, whole = scan(original)
    dice = random.Random(mutate.__name__)
    for _ in range(2000):
        mutant = head + b"".join(mutate(parts, foreign, dice))
        verdict, chunks = scan(mutant)
        assert is_subsequence(chunks, whole)
        # A tail that goes on exactly where the file stopped is the file itself.
        assert verdict == (COMPLETE if mutant == original else DAMAGED)


def test_mutants_through_the_whole_store_keep_only_true_rows(
    journals: tuple[bytes, bytes], tmp_path: Path
) -> None:
    original = journals[0]
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "rank-0000.mtj").write_bytes(original)
    whole = rows_of(tmp_path / "whole")[1]
    dice = random.Random("store")
    read = 0
    for number in range(300):
        folder = tmp_path / f"m{number}"
        folder.mkdir()
        mutate = dice.choice((flip, insert, delete, zero, overwrite))
        mutant = mutate(original, dice)
        (folder / "rank-0000.mtj").write_bytes(mutant)
        try:
            verdict, rows = rows_of(folder)
        except TraceFileError:
            continue
        assert (verdict == COMPLETE) == (mutant == original)
        assert rows <= whole
        read += 1
    assert read > 250


def test_20000_hostile_stamp_batches_are_refused_or_well_formed(journals: tuple[bytes, bytes]) -> None:
    payload = split(journals[0])[2][CHUNK_HEADER_BYTES:]
    assert decode_stamps(payload).slots.shape == (2, 16)
    # Arrow's headers are the part that can hurt; the columns of two blocks are the last 300 bytes.
    headers = len(payload) - 300
    dice = random.Random("arrow")
    read = 0
    for number in range(20_000):
        mutate = dice.choice((flip, insert, delete, zero, overwrite))
        part = headers if number % 4 else len(payload)
        mutant = mutate(payload[:part], dice) + payload[part:]
        try:
            batch = decode_stamps(mutant)
        except PayloadError:
            continue
        assert batch.slots.shape[0] == len(batch.block) == len(batch.sm) == len(batch.time_ns)
        read += 1
    assert 0 < read < 20_000


def test_hostile_payloads_with_good_checksums_never_crash_the_store(
    journals: tuple[bytes, bytes], tmp_path: Path
) -> None:
    head, parts = journals[0][:FILE_HEADER_BYTES], split(journals[0])
    file_crc = zlib.crc32(head[:-4])
    dice = random.Random("hostile")
    verdicts = set()
    for number in range(400):
        mutants = list(parts)
        for at in dice.sample(range(len(parts)), 2):
            payload = dice.choice((flip, insert, delete, overwrite))(parts[at][CHUNK_HEADER_BYTES:], dice)
            kind = struct.unpack_from("<I", parts[at], 4)[0]
            mutants[at] = encode_chunk_header(kind, payload, at, file_crc) + payload
        folder = tmp_path / f"m{number}"
        folder.mkdir()
        (folder / "rank-0000.mtj").write_bytes(head + b"".join(mutants))
        verdicts.add(rows_of(folder)[0])
    assert DAMAGED in verdicts


def rows_of(folder: Path) -> tuple[str, set[tuple[int, ...]]]:
    """The verdict, and the spans with absolute times, without names: META may be what was hit."""
    run = open_run(folder)
    rows = set()
    for rank in run.ranks:
        for step, base_ns in zip(run.step_ids(rank), run.steps(rank)["base_ns"].to_pylist(), strict=True):
            for row in run.spans(rank, step).to_pylist():
                rows.add((step, row["launch"], row["block"], base_ns + row["begin"], row["dur"], row["flag"]))
    return run.verdict, rows
