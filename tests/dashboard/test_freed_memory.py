"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import pytest

from musetrace.dashboard.freed_memory import give_back

_PIECE_BYTES, _PIECES = 64 << 10, 1_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap")
def test_what_lies_below_something_in_use_goes_back_too() -> None:
    pieces = [b"x" * _PIECE_BYTES for _ in range(_PIECES)]
    last = pieces.pop()  # the heap cannot shrink below it
    full = resident_bytes()
    pieces.clear()
    give_back()
    assert resident_bytes() < full - _PIECE_BYTES * _PIECES / 2
    assert len(last) == _PIECE_BYTES


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    give_back()
