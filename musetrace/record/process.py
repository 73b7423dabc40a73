"""Runs a user's program with the recorder switched on: its exit code is kept and signals reach it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from musetrace.errors import RecordError

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
# A shell's convention for a program that a signal ended.
_SIGNAL_EXIT = 128


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program with some environment variables set and return its exit code, 128 + n for signal n.

    Raises RecordError when it cannot be started.
    """
    with _signals_passed_on() as receiver:
        try:
            process = subprocess.Popen(command, env={**os.environ, **environment})
        except OSError as error:
            raise RecordError(f"cannot start {command[0]}: {error.strerror}; check the command") from error
        receiver.is_now(process)
        code = process.wait()
    return code if code >= 0 else _SIGNAL_EXIT - code


class _Receiver:
    """Gets the signals of this process; those that come before the program has started wait for it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []

    def is_now(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        while self._waiting:
            process.send_signal(self._waiting.pop(0))

    def take(self, number: int, frame: Any) -> None:
        if number == signal.SIGINT and _terminal_sends_to_group():
            return
        if self._process is None:
            self._waiting.append(number)
        else:
            self._process.send_signal(number)


@contextmanager
def _signals_passed_on() -> Iterator[_Receiver]:
    """Send the signals that this process gets to a receiver."""
    receiver = _Receiver()
    before = {number: signal.signal(number, receiver.take) for number in _PASSED_ON}
    try:
        yield receiver
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminal_sends_to_group() -> bool:
    """Whether a Ctrl-C came from the terminal, which sends it to the program as well."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
