"""One line on a terminal that grows while something takes time; nothing where there is no terminal."""

from __future__ import annotations

import time
from typing import TextIO

_WIDTH = 30
# A terminal needs no more, and a redraw costs time.
_REDRAW_S = 0.05


class ProgressBar:
    """A bar on a stream. Context manager: the line is wiped when it ends."""

    def __init__(self, stream: TextIO, verb: str, unit: str) -> None:
        """``verb`` stands before the bar, ``unit`` after the counts."""
        self._stream = stream
        self._verb = verb
        self._unit = unit
        self._on_terminal = stream.isatty()
        self._last_length = 0
        self._drawn_s = -1.0

    def show(self, done: int, total: int) -> None:
        """Draw ``done`` of ``total``."""
        now = time.monotonic()
        if not self._on_terminal or (done < total and now - self._drawn_s < _REDRAW_S):
            return
        self._drawn_s = now
        filled = _WIDTH * done // total if total else _WIDTH
        self._draw(f"{self._verb} [{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total} {self._unit}")

    def _draw(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(self._last_length))
        self._stream.flush()
        self._last_length = len(line)

    def __enter__(self) -> ProgressBar:
        """Itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Wipe the line."""
        if self._last_length:
            self._draw("")
            self._stream.write("\r")
            self._stream.flush()
