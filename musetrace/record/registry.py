"""The recorder that is open in this process: one at most, closed at exit, switched off in a forked child."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import Protocol

from musetrace.errors import RecordError

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


class OpenRecorder(Protocol):
    """What the registry needs of a recorder."""

    opened_at: str

    def close_at_exit(self) -> None:
        """Write the totals; the interpreter is about to end."""

    def switch_off_in_child(self) -> None:
        """This process is a fork of the one that records."""


_current: OpenRecorder | None = None


def enter(recorder: OpenRecorder) -> None:
    """Make this the open recorder. Raises RecordError when there is one."""
    global _current
    refuse_second()
    _current = recorder


def refuse_second() -> None:
    """Raises RecordError, naming where the open recorder was opened, when there is one."""
    if _current is not None:
        raise RecordError(f"a recorder is open since {_current.opened_at}; close it before opening another")


def leave(recorder: OpenRecorder) -> None:
    """The recorder was closed."""
    global _current
    if _current is recorder:
        _current = None


def caller() -> str:
    """File and line of the first caller outside of this package."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _at_exit() -> None:
    if _current is not None:
        _current.close_at_exit()


def _in_child() -> None:
    global _current
    recorder, _current = _current, None
    if recorder is not None:
        recorder.switch_off_in_child()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
