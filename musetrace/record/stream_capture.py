"""What captures of CUDA graphs forbid, and how the recorder keeps out of their way.

While a stream is captured in CUDA's global mode (torch's default), a call that could be a mistake inside of
the capture, such as waiting for an event or allocating memory, breaks that capture, whichever thread makes
it. A thread in relaxed mode may make such calls.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

_RELAXED = 2


class CaptureMode:
    """The capture mode of the calling thread; where CUDA's driver cannot be asked, it stays as it is."""

    def __init__(self) -> None:
        """Find the driver, which is loaded already."""
        self._exchange: Any = None
        with contextlib.suppress(OSError, AttributeError):
            self._exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode

    def relax(self) -> int:
        """Make the thread's mode relaxed; returns the mode before. The thread must have chosen its GPU."""
        return self._swap(_RELAXED)

    @contextlib.contextmanager
    def relaxed(self) -> Iterator[None]:
        """Relaxed inside of the block."""
        before = self._swap(_RELAXED)
        try:
            yield
        finally:
            self._swap(before)

    def _swap(self, mode: int) -> int:
        value = ctypes.c_int(mode)
        if self._exchange is not None:
            self._exchange(ctypes.byref(value))
        return value.value
