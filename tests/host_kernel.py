"""Somebody's kernel for tests of the recorder: written from the ABI alone, it stamps through a raw address.

Offsets are those of ``stamp.h`` in numbers, so that this and the package can only agree by being right.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from musetrace.job_table import JobTable

MODES = {"off": 0, "store": 1, "register": 2}
SLOT_BYTES = {"off": 0, "store": 8, "register": 4}
_REGION_HEADER = np.dtype(
    [(name, "<u4") for name in ("blocks", "slots", "slot_bytes", "epoch", "launches", "dropped", "mismatch")]
)
_BLOCK_HEADER = np.dtype(
    [("time_ns", "<u8"), ("epoch", "<u4"), ("sm", "<u4"), ("overflow", "<u4"), ("reserved", "<u4")]
)


@dataclass
class HostKernel:
    """Stamps pair p of block b at ``t0 + 100 * b + 10 * p`` for ``p + 1`` ns, in ``grid`` blocks.

    ``pairs`` are those that it stamps; None: all of the table.
    """

    table: JobTable
    grid: int
    stamps: str = "register"
    pairs: tuple[int, ...] | None = None

    def run(self, address: int, t0: int | None = None) -> int:
        """One launch; returns its ``t0``."""
        t0 = time.monotonic_ns() if t0 is None else t0
        if address == 0 or self.stamps == "off":
            return t0
        header = view(address, _REGION_HEADER, 1)
        told = header[0].copy()
        header["launches"] += 1
        slots, size = self.table.slots, SLOT_BYTES[self.stamps]
        if (told["slots"], told["slot_bytes"]) != (slots, size):
            header["mismatch"] = size << 24 | slots
            return t0
        room = int(told["blocks"])
        blocks = min(self.grid, room)
        header["dropped"] += self.grid - blocks
        block_headers = view(address + 128, _BLOCK_HEADER, room)
        assert not (block_headers["epoch"] > told["epoch"]).any()
        block_headers["time_ns"][:blocks] = t0
        block_headers["epoch"][:blocks] = told["epoch"]
        block_headers["sm"][:blocks] = np.arange(blocks) + 7
        begin = address + -(-(128 + 24 * room) // 128) * 128
        stamps = view(begin, np.dtype(f"<u{size}"), room * slots).reshape(room, slots // 2, 2)
        stamped = slice(None) if self.pairs is None else list(self.pairs)
        stamps[:blocks, stamped] = self.times(t0)[:blocks, stamped].astype(stamps.dtype)
        return t0

    def times(self, t0: int) -> npt.NDArray[np.uint64]:
        """u64[grid, pairs, 2]: begin and end of each pair."""
        pair = np.arange(self.table.slots // 2, dtype=np.uint64)
        begin = np.uint64(t0) + np.uint64(100) * np.arange(self.grid, dtype=np.uint64)[:, None]
        begin = begin + np.uint64(10) * pair[None, :]
        return np.stack([begin, begin + pair + np.uint64(1)], axis=2)


def view(address: int, dtype: np.dtype[np.void], count: int) -> npt.NDArray[np.void]:
    """An array over raw memory."""
    memory = (ctypes.c_uint8 * (dtype.itemsize * count)).from_address(address)
    return np.frombuffer(memory, dtype=dtype)


def build_libraries(repository: Path, folder: Path) -> dict[str, ctypes.CDLL]:
    """``native/kernel_on_host.cpp``, a kernel through the public header, in its three builds."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    built = {}
    for mode, number in MODES.items():
        library = folder / f"lib{mode}.so"
        options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
        options += [f"-DMUSETRACE_STAMPS={number}", "-I", "csrc/include"]
        command = [compiler, *options, "tests/native/kernel_on_host.cpp", "-o", str(library)]
        subprocess.run(command, cwd=repository, check=True, timeout=120)
        built[mode] = ctypes.CDLL(str(library))
    return built
