"""Programs that record, in processes of their own, so that they can be killed, forked and starved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[str]"]

PROLOGUE = """
import os, signal, sys, threading, time
# A shell may have started the tests with Ctrl-C ignored, as in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from musetrace.record import record
from tests.host_device import HostDevice, already_done, wait_until
from musetrace.record.source import BUFFERS, LaunchInfo

run = Path("run")
device = HostDevice(ranks=2)

def open_collector(recorder):
    return recorder.attach(device.source())

def say(word):
    print(word, flush=True)
"""


@pytest.fixture
def start(tmp_path: Path, repository: Path) -> Iterator[Start]:
    """`start(code)` starts a program in `tmp_path` that has `record`, a device, and `say` at hand."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *wrapper: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSETRACE_")}
        process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", PROLOGUE + code],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(repository)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def finish(start: Start) -> Callable[..., tuple[int, str, str]]:
    """`finish(code)` runs a program to its end: (exit code, stdout, stderr)."""

    def finish(code: str, *wrapper: str) -> tuple[int, str, str]:
        process = start(code, *wrapper)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    return finish
