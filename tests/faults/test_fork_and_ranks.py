"""Rows F1 to F5 of the fault table: forks while recording, and journals that do not belong together."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from musetrace.errors import TraceFileError
from musetrace.store import open_run
from tests.builders import build_run as build
from tests.builders import build_run_from_text, launches_from_text, small_table

Finish = Callable[..., tuple[int, str, str]]

TEXT = "\n".join(f"r{rank} s0 l0 layer=0 sliding b0 w1 norm {1000 + rank} 2000" for rank in range(4))


def test_f1_a_forked_child_never_writes_and_the_parent_is_complete(finish: Finish, tmp_path: Path) -> None:
    code = """
recorder = record(run, stamps="store")
collector = open_collector(recorder)
codes = []
for step in range(30):
    child = os.fork()
    if child == 0:
        assert not recorder.active and recorder.state == "off"
        assert collector.acquire(LaunchInfo(step, 0, 0, "sliding")) is None
        collector.step(step, 1, 2)
        collector.report({})
        assert recorder.close().verdict == "off"
        assert record().active is False
        # As a child that ends like any program: atexit handlers run.
        sys.exit(3)
    for launch in range(3):
        wait_until(lambda: bool(recorder._drain.free))
        lease = collector.acquire(LaunchInfo(step, launch, 0, "sliding"))
        device.stamp(lease)
        collector.submit(lease, already_done)
    collector.step(step, 1, 2)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert codes == [3] * 30, codes
print(recorder.close().verdict)
"""
    exit_code, out, err = finish(code)
    assert (exit_code, out, err) == (0, "complete\n", "")
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.launches(1).num_rows, run.losses["lost_launches"]) == ("complete", 90, 0)


def test_f1_a_child_that_outlives_its_parent_does_not_keep_the_run_open(
    finish: Finish, tmp_path: Path
) -> None:
    code = """
recorder = record(run, stamps="store")
device.run_steps_unhurried(recorder, open_collector(recorder), steps=1)
wait_until(lambda: recorder._drain.journals[1].steps == 1)
read, write = os.pipe()
if os.fork() == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.write(write, b"x")
    time.sleep(5)
    os._exit(0)
os.read(read, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert finish(code)[0] == -9
    run = open_run(tmp_path / "run")
    assert (run.verdict, run.is_being_recorded) == ("incomplete", False)


def test_f2_a_fork_while_the_drain_holds_its_locks_never_hangs(finish: Finish, tmp_path: Path) -> None:
    code = """
recorder = record(run, stamps="store")
collector = open_collector(recorder)
ledger = recorder._drain._ledger
held = threading.Event()
def hold():
    with ledger._lock, recorder._close_lock:
        held.set()
        time.sleep(0.5)
holder = threading.Thread(target=hold)
holder.start()
held.wait()
children = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        for step in range(10):
            collector.acquire(LaunchInfo(step, 0, 0, "sliding"))
        recorder.close()
        os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
holder.join()
print(recorder.close().verdict)
"""
    assert finish(code) == (0, "complete\n", "")


def test_f3_two_files_of_one_rank_are_refused_by_name(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "run", TEXT, small_table())
    shutil.copy(folder / "rank-0002.mtj", folder / "copy.mtj")
    with pytest.raises(TraceFileError, match=r"copy\.mtj and .*rank-0002\.mtj are both rank 2; move one"):
        open_run(folder)


def test_f4_a_missing_rank_is_listed_and_the_others_are_read(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "run", TEXT, small_table())
    (folder / "rank-0001.mtj").unlink()
    run = open_run(folder)
    assert (run.verdict, run.ranks, run.losses["missing_ranks"]) == ("incomplete", (0, 2, 3), [1])
    assert run.notes == ("1 of 4 ranks have no readable journal here: 1",)
    assert open_run(folder).losses["missing_ranks"] == [1]


def test_f4_an_unreadable_rank_is_missing_and_said_so(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "run", TEXT, small_table())
    (folder / "rank-0003.mtj").write_bytes(b"hello")
    (folder / "rank-0001.mtj").write_bytes(b"")
    for run in (open_run(folder), open_run(folder)):
        assert (run.verdict, run.ranks, run.losses["missing_ranks"]) == ("damaged", (0, 2), [1, 3])
        assert "rank-0001.mtj stops inside its file header" in run.notes[1]
        assert "rank-0003.mtj is not a musetrace journal" in run.notes[2]


def test_f4_a_rank_of_another_recording_is_refused_by_name(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "run", TEXT, small_table())
    launches = launches_from_text(TEXT, small_table(), 4)
    other = build(tmp_path / "other", {0: launches[0]}, small_table(), 4, world=4)
    data = bytearray((other / "rank-0000.mtj").read_bytes())
    (folder / "rank-0003.mtj").unlink()
    (folder / "rank-0003.mtj").write_bytes(of_another_recording(bytes(data)))
    with pytest.raises(TraceFileError, match=r"rank-0000\.mtj and .*rank-0003\.mtj are of two recordings"):
        open_run(folder)


def of_another_recording(data: bytes) -> bytes:
    """The file header of another recording; the chunks need not fit for it to be told apart."""
    from musetrace.store.frame import FILE_HEADER_BYTES, encode_file_header

    return encode_file_header(b"another one here") + data[FILE_HEADER_BYTES:]


def test_f5_one_killed_rank_is_incomplete_and_the_others_are_whole(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "run", TEXT, small_table())
    path = folder / "rank-0003.mtj"
    path.write_bytes(path.read_bytes()[:-40])
    run = open_run(folder)
    assert run.verdict == "incomplete"
    assert [entry["verdict"] for entry in run.manifest["ranks"]] == ["complete"] * 3 + ["incomplete"]
    assert run.spans(3, 0).num_rows == 1
    assert all("rank-0003.mtj" in note for note in run.notes)
