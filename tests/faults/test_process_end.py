"""Rows A1 to A9 of the fault table: how a process that records can end."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from musetrace.errors import NotARunError
from musetrace.store import open_run

Finish = Callable[..., tuple[int, str, str]]

RECORD_FOR_EVER = """
with record(run, stamps="store") as recorder:
    collector = open_collector(recorder)
    step = 0
    while True:
        device.run_steps_unhurried(recorder, StepShift(collector, step), steps=1)
        wait_until(lambda: len(recorder._drain.free) == BUFFERS)
        say(step)
        step += 1
"""
SHIFT = """
class StepShift:
    # Numbers the steps of the device's one-step runs upwards.
    def __init__(self, collector, first):
        self.collector, self.first = collector, first
    def acquire(self, info):
        return self.collector.acquire(LaunchInfo(self.first, info.launch, info.layer, info.kind))
    def submit(self, lease, wait_done):
        self.collector.submit(lease, wait_done)
    def step(self, step, begin, end, tokens=0):
        self.collector.step(self.first, begin, end, tokens)
"""


def read_steps(process: object, count: int) -> None:
    for _ in range(count):
        process.stdout.readline()  # type: ignore[attr-defined]


def check_killed_run(folder: Path, drained_steps: int) -> None:
    """All drained steps are there, complete, and nothing else than a clean stop."""
    run = open_run(folder)
    assert run.verdict == "incomplete"
    assert run.losses["damaged_chunks"] == 0
    for rank in (0, 1):
        launches = run.launches(rank)
        assert launches.num_rows >= 3 * drained_steps
        assert set(launches["spans"].to_pylist()) == {16}


def test_a1_sigkill_loses_nothing_that_was_drained(start: Callable[..., object], tmp_path: Path) -> None:
    dice = random.Random(1)
    for _ in range(5):
        process = start(SHIFT + RECORD_FOR_EVER)
        steps = dice.randrange(1, 12)
        read_steps(process, steps)
        time.sleep(dice.random() * 0.01)
        process.kill()  # type: ignore[attr-defined]
        process.wait()  # type: ignore[attr-defined]
        check_killed_run(tmp_path / "run", steps)
        for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (tmp_path / "run").rmdir()


def test_a1_killed_at_the_nth_write_the_file_ends_with_the_chunk_before(
    finish: Finish, tmp_path: Path
) -> None:
    code = """
from musetrace.store import journal_writer
class Dying:
    calls = 0
    def __getattr__(self, name):
        return getattr(os, name)
    def write(self, fd, data):
        Dying.calls += 1
        if Dying.calls == LIMIT:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.write(fd, data)
journal_writer.os = Dying()
device = HostDevice(ranks=1)
with record(run, stamps="store") as recorder:
    device.run_steps_unhurried(recorder, open_collector(recorder), steps=2)
"""
    # Header, META, CLOCK, then three launches and a step, twice, then CLOCK and END.
    stamps_before = [0, 0, 0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 6]
    for limit, stamps in enumerate(stamps_before, start=1):
        exit_code, _, _ = finish(code.replace("LIMIT", str(limit)))
        assert exit_code == -signal.SIGKILL
        folder = (tmp_path / "run").rename(tmp_path / f"killed-{limit}")
        if limit == 1:
            with pytest.raises(NotARunError, match="killed at its start"):
                open_run(folder)
            continue
        run = open_run(folder)
        assert (run.verdict, run.losses["damaged_chunks"]) == ("incomplete", 0)
        assert run.launches(0).num_rows == stamps


def test_a3_ctrl_c_writes_the_end_chunk_and_reaches_the_user(
    start: Callable[..., object], tmp_path: Path
) -> None:
    process = start(SHIFT + RECORD_FOR_EVER)
    read_steps(process, 3)
    process.send_signal(signal.SIGINT)  # type: ignore[attr-defined]
    _, err = process.communicate(timeout=30)  # type: ignore[attr-defined]
    assert "KeyboardInterrupt" in err
    run = open_run(tmp_path / "run")
    assert run.verdict == "complete"
    assert run.manifest["ranks"][0]["end_reason"] == "ended by KeyboardInterrupt"


def test_a4_a_second_ctrl_c_during_close_wins(start: Callable[..., object], tmp_path: Path) -> None:
    code = """
with record(run, stamps="store") as recorder:
    collector = open_collector(recorder)
    gate = threading.Event()
    device.run_step(collector, 0)
    wait_until(lambda: len(recorder._drain.free) == BUFFERS)
    device.run_step(collector, 1, wait_done=gate.wait)
    say("stuck")
    gate.wait()
"""
    process = start(code)
    read_steps(process, 1)
    for _ in range(2):
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)  # type: ignore[attr-defined]
    process.communicate(timeout=20)  # type: ignore[attr-defined]
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.launches(0).num_rows) == ("incomplete", 3)


@pytest.mark.parametrize(
    ("ending", "exit_code"),
    [("os._exit(7)", 7), ("os.abort()", -signal.SIGABRT), ("os.kill(os.getpid(), signal.SIGTERM)", -15)],
)
def test_a5_a6_a_sudden_end_keeps_its_exit_code_and_what_was_drained(
    finish: Finish, tmp_path: Path, ending: str, exit_code: int
) -> None:
    code = f"""
recorder = record(run, stamps="store")
device.run_steps_unhurried(recorder, open_collector(recorder), steps=2)
wait_until(lambda: recorder._drain.journals[1].steps == 2)
{ending}
time.sleep(30)
"""
    assert finish(code)[0] == exit_code
    check_killed_run(tmp_path / "run", 2)


def test_a7_a_recorder_that_is_never_closed_is_closed_at_exit(finish: Finish, tmp_path: Path) -> None:
    code = """
recorder = record(run, stamps="store")
device.run_steps_unhurried(recorder, open_collector(recorder), steps=2)
sys.exit(5)
"""
    exit_code, _, err = finish(code)
    assert (exit_code, err) == (5, "")
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.launches(1).num_rows) == ("complete", 6)
    assert run.manifest["ranks"][0]["end_reason"] == "the program ended"


@pytest.mark.parametrize("chunk", [3, 7])
def test_a8_an_exception_in_the_drain_thread_never_harms_the_program(
    finish: Finish, tmp_path: Path, chunk: int
) -> None:
    code = """
from musetrace.store.frame import ChunkType
from musetrace.store.journal_writer import JournalWriter
real = JournalWriter.write_buffer
calls = 0
def write_buffer(self, kind, *args):
    global calls
    calls += kind == ChunkType.STAMPS
    if calls > LIMIT:
        raise RuntimeError("the sink\\nbroke" + " very" * 10_000)
    return real(self, kind, *args)
JournalWriter.write_buffer = write_buffer
attempts = recorded = 0
with record(run, stamps="store") as recorder:
    collector = open_collector(recorder)
    for step in range(20):
        recorded += device.run_step(collector, step)
        attempts += 3
        time.sleep(0.002)
result = recorder.close()
print(result.state)
print(result.launches, result.lost_launches, 2 * attempts, result.verdict)
"""
    exit_code, out, err = finish(code.replace("LIMIT", str(chunk)))
    assert exit_code == 0
    state, numbers = out.splitlines()
    assert state.startswith("failed: RuntimeError: the sink broke very very")
    assert len(state) < 600
    launches, lost, attempts, verdict = numbers.split()
    assert int(launches) == chunk
    assert int(launches) + int(lost) == int(attempts)
    assert verdict == "incomplete"
    assert err.count("\n") == 1
    assert err.startswith("musetrace: recording stopped: RuntimeError: the sink broke very")
    assert "; the program goes on" in err
    run = open_run(tmp_path / "run")
    assert sum(run.launches(rank).num_rows for rank in (0, 1)) == chunk
    assert run.losses["damaged_chunks"] == 0


def test_a8_a_launch_that_fails_keeps_what_it_stamped(finish: Finish, tmp_path: Path) -> None:
    code = """
def broken():
    raise RuntimeError("the launch hung")
with record(run, stamps="store") as recorder:
    collector = open_collector(recorder)
    device.run_steps_unhurried(recorder, collector, steps=1)
    lease = collector.acquire(LaunchInfo(1, 0, 0, "sliding"))
    device.stamp(lease)
    collector.submit(lease, broken)
    wait_until(lambda: recorder.state.startswith("failed"))
    assert collector.acquire(LaunchInfo(1, 1, 0, "sliding")) is None
"""
    exit_code, _, err = finish(code)
    assert exit_code == 0
    assert "RuntimeError: the launch hung" in err
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.losses["lost_launches"]) == ("complete", 2)
    assert run.launches(0)["spans"].to_pylist() == [16, 16, 16, 16]
    assert run.manifest["ranks"][0]["end_reason"] == "failed: RuntimeError: the launch hung"


def test_a9_close_from_eight_threads_at_once_ends_it_once(finish: Finish, tmp_path: Path) -> None:
    code = """
recorder = record(run, stamps="store")
results = []
barrier = threading.Barrier(8)
device.run_steps_unhurried(recorder, open_collector(recorder), steps=2)
def close():
    barrier.wait()
    results.append(recorder.close())
threads = [threading.Thread(target=close) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(results) == 8 and all(result is results[0] for result in results)
assert recorder.close() is results[0]
print(results[0].verdict, results[0].launches)
"""
    exit_code, out, err = finish(code)
    assert (exit_code, out, err) == (0, "complete 12\n", "")
    assert open_run(tmp_path / "run").verdict == "complete"
