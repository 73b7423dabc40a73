"""Rows B1 to B8 of the fault table: the disk is full, fails, or is slow; and two recorders want one place."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from musetrace.record.source import BUFFERS
from musetrace.store import open_run

Finish = Callable[..., tuple[int, str, str]]

RECORD = """
attempts = 0
with record(run, stamps="store") as recorder:
    collector = open_collector(recorder)
    for step in range(30):
        device.run_step(collector, step)
        attempts += 3
        time.sleep(0.001)
result = recorder.close()
print(result.launches, result.lost_launches, 2 * attempts)
print(result.state)
"""


def check_stopped(out: str, err: str, folder: Path, reason: str) -> None:
    """The losses are exact, one line was printed, and the files end with whole chunks."""
    numbers, state = out.splitlines()
    launches, lost, attempts = map(int, numbers.split())
    assert launches + lost == attempts
    assert lost > 0
    assert reason in state
    assert err.count("\n") == 1
    run = open_run(folder)
    assert run.verdict == "incomplete"
    assert run.losses["damaged_chunks"] == 0
    assert sum(run.launches(rank).num_rows for rank in run.ranks) == launches


def test_b1_a_full_disk_stops_the_recording_and_not_the_program(finish: Finish, tmp_path: Path) -> None:
    limit = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
"""
    unlimited = "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
    code = limit + RECORD.replace("result = recorder.close()", unlimited + "result = recorder.close()")
    exit_code, out, err = finish(code)
    assert exit_code == 0
    check_stopped(out, err, tmp_path / "run", "File too large")
    assert (tmp_path / "run" / "rank-0000.mtj").stat().st_size <= 20_000


@pytest.mark.parametrize("nth", [7, 8, 15, 30])
def test_b2_an_error_at_the_nth_write(finish: Finish, tmp_path: Path, nth: int) -> None:
    code = f"""
from musetrace.store import journal_writer
class Failing:
    calls = 0
    def __getattr__(self, name):
        return getattr(os, name)
    def write(self, fd, data):
        Failing.calls += 1
        if Failing.calls >= {nth}:
            if Failing.calls == {nth}:
                os.write(fd, data[: len(data) // 2])
            raise OSError({errno.EIO}, "Input/output error")
        return os.write(fd, data)
journal_writer.os = Failing()
"""
    exit_code, out, err = finish(code + RECORD)
    assert exit_code == 0
    check_stopped(out, err, tmp_path / "run", "Input/output error")


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 6])
def test_b2_an_error_before_the_first_launch_refuses_it(finish: Finish, tmp_path: Path, nth: int) -> None:
    code = f"""
from musetrace.errors import RecordError
from musetrace.store import journal_writer
class Failing:
    calls = 0
    def __getattr__(self, name):
        return getattr(os, name)
    def write(self, fd, data):
        Failing.calls += 1
        if Failing.calls == {nth}:
            raise OSError({errno.ENOSPC}, "No space left on device")
        return os.write(fd, data)
journal_writer.os = Failing()
with record(run, stamps="store") as recorder:
    try:
        open_collector(recorder)
    except RecordError as error:
        print(error)
"""
    exit_code, out, err = finish(code)
    assert (exit_code, err) == (0, "")
    assert "No space left on device" in out
    assert "choose another output" in out
    assert not (tmp_path / "run").exists()


def test_b6_a_slow_disk_costs_launches_and_not_time(finish: Finish, tmp_path: Path) -> None:
    code = """
from musetrace.store.frame import ChunkType
from musetrace.store.journal_writer import JournalWriter
real = JournalWriter.write_buffer
gate = threading.Event()
def write_buffer(self, kind, *args):
    if kind == ChunkType.STAMPS:
        gate.wait()
    return real(self, kind, *args)
JournalWriter.write_buffer = write_buffer
with record(run, stamps="store") as recorder:
    collector = open_collector(recorder)
    # The disk does not answer while these launches are made.
    taken = sum(device.run_step(collector, step) for step in range(200))
    gate.set()
result = recorder.close()
assert taken <= BUFFERS + 1, taken
assert result.launches + result.lost_launches == 1200
print(result.verdict)
"""
    exit_code, out, err = finish(code)
    assert (exit_code, out, err) == (0, "complete\n", "")
    assert open_run(tmp_path / "run").losses["lost_launches"] >= 2 * (600 - BUFFERS - 1)


def test_b7_without_threads_it_is_refused_before_the_first_launch(finish: Finish, tmp_path: Path) -> None:
    code = """
from musetrace.errors import RecordError
def start(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = start
with record(run, stamps="store") as recorder:
    try:
        open_collector(recorder)
    except RecordError as error:
        print(error)
"""
    exit_code, out, err = finish(code)
    assert (exit_code, err) == (0, "")
    assert "can't start new thread" in out
    assert not (tmp_path / "run").exists()


def test_b8_a_second_process_is_refused_and_the_first_is_unharmed(
    start: Callable[..., object], finish: Finish, tmp_path: Path
) -> None:
    first = start(
        """
with record(run, stamps="store") as recorder:
    collector = open_collector(recorder)
    say("open")
    while not Path("go").exists():
        time.sleep(0.01)
    device.run_steps_unhurried(recorder, collector, steps=2)
"""
    )
    assert first.stdout.readline() == "open\n"  # type: ignore[attr-defined]
    for force in ("False", "True"):
        exit_code, _, err = finish(f"record(run, force={force})")
        assert exit_code == 1
        assert "RecordError" in err
    (tmp_path / "go").touch()
    first.communicate(timeout=30)  # type: ignore[attr-defined]
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.launches(0).num_rows) == ("complete", 6)


def test_b9_a_second_recorder_in_a_process_names_where_the_first_was_opened(
    finish: Finish, tmp_path: Path
) -> None:
    code = """
from musetrace.errors import RecordError
recorder = record(run, stamps="store")  # this line
line = sys._getframe().f_lineno - 1
try:
    record("other")
except RecordError as error:
    assert f"<string>:{line}" in str(error), error
recorder.close()
record("other").close()
"""
    assert finish(code) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
