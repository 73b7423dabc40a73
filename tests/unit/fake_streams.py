"""Torch's streams and events without a GPU, for tests of the recorder's CUDA part: memory is the host's.

Work on tensors happens at once, in the order in which it is queued; ``log`` has what was asked of streams,
and whether the thread was in relaxed capture mode.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from musetrace.record import cuda_kernel_device, stream_capture

GLOBAL, RELAXED = 0, 2


class Cuda:
    """The state of the fake."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, bool]] = []
        self.capturing: set[str] = set()
        self._modes = threading.local()
        self.current: list[FakeStream] = [FakeStream(name="default")]
        self.error: Exception | None = None

    @property
    def mode(self) -> int:
        """The capture mode of this thread."""
        return getattr(self._modes, "mode", GLOBAL)

    @mode.setter
    def mode(self, mode: int) -> None:
        self._modes.mode = mode

    def note(self, what: str, stream: str) -> None:
        """Something was asked of a stream. Raises the device's error, once it has one."""
        if self.error is not None:
            raise self.error
        self.log.append((what, stream, self.mode == RELAXED))

    def asked(self, stream: str) -> list[str]:
        """What was asked of one stream, in order."""
        return [what for what, name, _ in self.log if name == stream]


CUDA = Cuda.__new__(Cuda)


class FakeStream:
    """Of torch, or of an address."""

    made = 0

    def __init__(self, address: int | None = None, device: int = 0, *, name: str = "") -> None:
        FakeStream.made += 1
        self.name = name or (f"stream {FakeStream.made}" if address is None else f"at {address}")

    def wait_stream(self, other: FakeStream) -> None:
        CUDA.note(f"wait for {other.name}", self.name)

    def synchronize(self) -> None:
        CUDA.note("synchronize", self.name)


class FakeEvent:
    """Recorded in a stream, and over at once."""

    def __init__(self, blocking: bool = False) -> None:
        assert blocking

    def record(self, stream: FakeStream) -> None:
        assert stream.name not in CUDA.capturing
        CUDA.note("record", stream.name)

    def synchronize(self) -> None:
        if CUDA.error is not None:
            raise CUDA.error


def exchange(mode: Any) -> int:
    """The driver's cuThreadExchangeStreamCaptureMode, for one thread."""
    found = ctypes.cast(mode, ctypes.POINTER(ctypes.c_int))
    found[0], CUDA.mode = CUDA.mode, found[0]
    return 0


@contextlib.contextmanager
def stream_block(stream: FakeStream) -> Iterator[None]:
    """Torch's current stream inside of the block."""
    CUDA.current.append(stream)
    yield
    CUDA.current.pop()


def clock_reads(count: int) -> np.ndarray[Any, Any]:
    """The GPU's clock, with a tick of 32 ns; waits for the device, so never inside of a capture."""
    assert not CUDA.capturing
    return time.time_ns() // 32 * 32 + 32 * np.arange(count, dtype=np.uint64)


def install(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """A GPU for this test."""
    CUDA.__init__()  # type: ignore[misc]
    module = ModuleType("musetrace._cuda")
    module.__dict__.update(clock_reads=clock_reads, set_device=lambda index: None, device_count=lambda: 1)
    monkeypatch.setitem(sys.modules, "musetrace._cuda", module)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    facts = SimpleNamespace(multi_processor_count=132)
    for name, value in {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "set_device": lambda index: None,
        "get_device_name": lambda: "NVIDIA H200",
        "get_device_properties": lambda index: facts,
        "Stream": FakeStream,
        "ExternalStream": FakeStream,
        "Event": FakeEvent,
        "stream": stream_block,
        "device": lambda index: contextlib.nullcontext(),
        "current_stream": lambda index=0: CUDA.current[-1],
        "default_stream": lambda index=0: CUDA.current[0],
        "is_current_stream_capturing": lambda: CUDA.current[-1].name in CUDA.capturing,
        "synchronize": lambda gpu=None: CUDA.note("synchronize", "device"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    zeros = lambda rows, size, *_: torch.zeros(rows, size, dtype=torch.uint8)  # noqa: E731
    monkeypatch.setattr(cuda_kernel_device, "device_zeros", zeros)
    monkeypatch.setattr(cuda_kernel_device, "pinned_zeros", zeros)
    driver = SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange)
    monkeypatch.setattr(stream_capture.ctypes, "CDLL", lambda name: driver)
    return CUDA
