"""Row B5 of the fault table: an output that cannot be used is refused, and nothing that exists is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from musetrace.errors import RecordError
from musetrace.record import record
from musetrace.record.opening import typed_command
from musetrace.record.output import OutputFolder
from musetrace.store import open_run
from tests.builders import JournalBuilder, build_run_from_text, small_table
from tests.host_device import HostDevice

SPAN = "r0 s0 l0 layer=0 sliding b0 w1 norm 1000 2000"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_run_is_refused_with_and_without_force(tmp_path: Path, force: bool) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "work.txt").write_text("precious")
    (tmp_path / "empty").mkdir()
    build_run_from_text(tmp_path / "run", SPAN, small_table())
    (tmp_path / "link").symlink_to(tmp_path / "run")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "fifo")
    before = contents(tmp_path / "run"), contents(tmp_path / "folder")
    for name, message in (
        ("file", "is not a folder; choose"),
        ("fifo", "is not a folder; choose"),
        ("folder", "is not a run; choose"),
        ("empty", "is not a run; choose"),
        ("link", "is a link; name the place itself"),
        ("dangling", "is a link"),
        ("missing/run", "does not exist; make it first"),
        ("file/run", "does not exist; make it first"),
        ("a\0b", "cannot use"),
        ("x" * 300, "cannot use"),
    ):
        with pytest.raises(RecordError, match=message) as refusal:
            record(tmp_path / name, force=force)
        assert "\n" not in str(refusal.value)
    assert before == (contents(tmp_path / "run"), contents(tmp_path / "folder"))
    assert not (tmp_path / "missing").exists()


def test_a_parent_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write anywhere, so the answer of the system is what is replaced.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RecordError, match=f"the folder {tmp_path} cannot be written; choose another"):
        record(tmp_path / "run")


def test_a_run_is_replaced_only_by_force_and_only_by_a_device(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "run", SPAN, small_table())
    old_id = open_run(folder).manifest["recording_id"]
    (folder / "notes.txt").write_text("mine")
    before = contents(folder)
    with pytest.raises(RecordError, match="exists; add --force"):
        record(folder)
    with record(folder, force=True):
        pass
    assert contents(folder) == before
    device = HostDevice(ranks=2)
    with record(folder, force=True, stamps="store") as recorder:
        device.run_steps_unhurried(recorder, recorder.attach(device.source()), steps=1)
    run = open_run(folder)
    assert (run.verdict, run.ranks) == ("complete", (0, 1))
    assert run.manifest["recording_id"] != old_id
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_run_that_is_being_recorded_is_never_replaced(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path / "run", small_table(), blocks=1)
    with pytest.raises(RecordError, match="being recorded right now"):
        record(tmp_path / "run", force=True)
    builder.end()
    OutputFolder(tmp_path / "run", force=True)


def test_clear_makes_room_for_another_process_and_keeps_other_files(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "run", SPAN, small_table())
    open_run(folder)
    OutputFolder(folder, force=True).clear()
    assert not folder.exists()
    folder = build_run_from_text(tmp_path / "other", SPAN, small_table())
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(RecordError, match="holds other files"):
        OutputFolder(folder, force=True).clear()
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_folder_behind_a_link_inside_a_run_is_not_removed(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "run", SPAN, small_table())
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "work.txt").write_text("precious")
    (folder / "spans").symlink_to(tmp_path / "elsewhere")
    with (
        record(folder, force=True, stamps="store") as recorder,
        pytest.raises(RecordError, match="cannot replace"),
    ):
        recorder.attach(HostDevice().source())
    assert (tmp_path / "elsewhere" / "work.txt").read_text() == "precious"


def test_a_new_run_is_private(tmp_path: Path) -> None:
    with record(tmp_path / "run", stamps="store") as recorder:
        recorder.attach(HostDevice().source())
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run" / "rank-0000.mtj").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "typed"),
    [
        (["/home/me/.venv/bin/musetrace", "record", "-o", "run"], ["musetrace", "record", "-o", "run"]),
        (["/opt/x/musetrace/__main__.py", "record"], ["python", "-m", "musetrace", "record"]),
        (["decode.py", "/data/in"], ["decode.py", "/data/in"]),
        (["-c"], ["-c"]),
        ([], []),
    ],
)
def test_a_run_says_what_was_typed_and_not_where_the_program_is(
    arguments: list[str], typed: list[str]
) -> None:
    assert typed_command(arguments) == typed
