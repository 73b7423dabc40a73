"""Opening a run: when its index is made again, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import musetrace.store.run as run_module
from musetrace.analysis import clocks
from musetrace.errors import AnalysisError, NotARunError, TraceFileError
from musetrace.store import open_run
from musetrace.store.index import MANIFEST, _text_of, index_run
from tests.builders import (
    SMALL_RUN_TEXT,
    JournalBuilder,
    build_run_from_text,
    launch_at,
    small_table,
)


def test_an_index_is_made_again_when_a_journal_changes(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    assert open_run(folder).verdict == "complete"
    journal = folder / "rank-0000.mtj"
    journal.write_bytes(journal.read_bytes()[:-5])
    assert open_run(folder).verdict == "incomplete"
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 4
    journal.write_bytes(data)
    assert open_run(folder).verdict == "damaged"


def test_a_fresh_index_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    open_run(folder)
    later = (folder / MANIFEST).stat().st_mtime_ns + 10**9
    os.utime(folder / MANIFEST, ns=(later, later))
    monkeypatch.setattr(run_module, "index_run", lambda _: pytest.fail("indexed again"))
    assert open_run(folder).verdict == "complete"
    for journal in folder.glob("*.mtj"):
        journal.unlink()
    run = open_run(folder)
    assert run.spans(0, 0).num_rows == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "text", "older version", "gone"])
def test_a_damaged_manifest_is_made_again(tmp_path: Path, damage: str) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    index_run(folder)
    path = folder / MANIFEST
    good = path.read_text()
    later = path.stat().st_mtime_ns + 10**9
    changed = {
        "flip": good.replace('"no_end": 1', '"no_end": 0'),
        "cut": good[:100],
        "text": "[]",
        "older version": good.replace('"index_version": "1.1"', '"index_version": "0.9"'),
        "gone": "",
    }[damage]
    assert changed != good
    path.write_text(changed)
    os.utime(path, ns=(later, later))
    assert open_run(folder).losses["no_end"] == 1
    assert path.read_text() == good


@pytest.mark.parametrize(("version", "is_read"), [("1.0", True), ("0.9", False), ("1.2", False)])
def test_an_index_of_another_version_is_read_where_its_journals_are_gone_and_it_says_as_much(
    tmp_path: Path, version: str, is_read: bool
) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    index_run(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["index_version"] = version
    for entry in manifest["ranks"]:
        del entry["alignment"]["residual_ns"]
    del manifest["crc32"]
    (folder / MANIFEST).write_text(_text_of(manifest))
    # With its journals it is made again; they may say more.
    assert open_run(shutil.copytree(folder, tmp_path / "whole")).manifest["index_version"] == "1.1"
    for journal in folder.glob("*.mtj"):
        journal.unlink()
    if is_read:
        run = open_run(folder)
        assert (run.manifest["index_version"], run.spans(0, 0).num_rows) == (version, 4)
        assert clocks(run)["residual_ns"].to_pylist() == [None, None]
    else:
        with pytest.raises(NotARunError):
            open_run(folder)


@pytest.mark.parametrize("table", ["spans", "launches", "steps"])
def test_a_flipped_byte_in_an_index_is_never_taken_for_data(tmp_path: Path, table: str) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    run = open_run(folder)
    good = (run.spans(0, 0), run.spans(0, 2), run.launches(0), run.steps(0))
    path = folder / table / "rank-0000.arrow"
    original = path.read_bytes()
    refused = 0
    for position in range(0, len(original), 3):
        data = bytearray(original)
        data[position] ^= 1 << position % 8
        path.write_bytes(data)
        hurt = run_module.Run(folder, folder, run.manifest)
        try:
            got = (hurt.spans(0, 0), hurt.spans(0, 2), hurt.launches(0), hurt.steps(0))
        except (TraceFileError, AnalysisError):
            refused += 1
            continue
        assert all(a.equals(b) for a, b in zip(got, good, strict=True))
    assert refused > 10


def test_left_overs_of_a_killed_index_are_removed(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    (folder / ".index-dead" / "spans").mkdir(parents=True)
    open_run(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "launches",
        "manifest.json",
        "rank-0000.mtj",
        "rank-0001.mtj",
        "spans",
        "steps",
    ]


def test_a_folder_that_cannot_be_written_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)

    def read_only(_: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(run_module, "index_run", read_only)
    run = open_run(folder)
    temporary = run._folder
    assert run.spans(0, 0).num_rows == 4
    assert temporary != folder
    assert sorted(path.name for path in folder.iterdir()) == ["rank-0000.mtj", "rank-0001.mtj"]
    del run
    assert not temporary.exists()


def test_a_run_that_is_still_recorded_is_read_without_touching_its_folder(tmp_path: Path) -> None:
    builder = JournalBuilder(tmp_path / "r", small_table(), blocks=1)
    builder.launch(launch_at(0, 0))
    run = open_run(tmp_path / "r")
    assert (run.verdict, run.is_being_recorded, run.spans(0, 0).num_rows) == ("incomplete", True, 1)
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["rank-0000.mtj"]
    builder.launch(launch_at(1, 0))
    assert open_run(tmp_path / "r").step_ids(0) == [0, 1]
    builder.end()
    run = open_run(tmp_path / "r")
    assert (run.verdict, run.is_being_recorded) == ("complete", False)


def test_the_wrong_path_is_refused_with_a_hint(tmp_path: Path) -> None:
    folder = build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("hello")
    os.mkfifo(tmp_path / "fifo")
    index_run(folder)
    for path, message in (
        (folder / "rank-0000.mtj", rf"journal of one rank; name its folder, {folder}"),
        (folder / MANIFEST, rf"manifest; name its folder, {folder}"),
        (tmp_path / "empty", "has no journal"),
        (tmp_path / "file.txt", "not a folder"),
        (tmp_path / "fifo", "not a folder"),
        (tmp_path / "nothing", "No such file"),
        (Path("/dev/zero"), "not a folder"),
        (Path("a\0b"), "cannot open"),
    ):
        with pytest.raises(NotARunError, match=message) as refusal:
            open_run(path)
        assert "\n" not in str(refusal.value)


def test_a_question_about_what_is_not_there_says_what_there_is(tmp_path: Path) -> None:
    run = open_run(build_run_from_text(tmp_path / "r", SMALL_RUN_TEXT, small_table(), blocks=2))
    with pytest.raises(AnalysisError, match=r"rank 0 .* has no step 1; it has 2 steps from 0 to 2"):
        run.spans(0, 1)
    with pytest.raises(AnalysisError, match=r"has no rank 7; it has 0, 1"):
        run.steps(7)
