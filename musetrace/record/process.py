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
    with _signals_passed_on() as receivers:
        try:
            process = subprocess.Popen(command, env={**os.environ, **environment})
        except OSError as error:
            raise RecordError(f"cannot start {command[0]}: {error.strerror}; check the command") from error
        receivers.append(process)
        code = process.wait()
    return code if code >= 0 else _SIGNAL_EXIT - code


@contextmanager
def _signals_passed_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Send the signals that this process gets to the processes in the list."""
    receivers: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: Any) -> None:
        if number == signal.SIGINT and _terminal_sends_to_group():
            return
        for process in receivers:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield receivers
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
