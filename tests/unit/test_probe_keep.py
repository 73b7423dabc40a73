"""Facts kept with a run: in its manifest, whatever becomes of the index, and never at the cost of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from musetrace.cli import main
from musetrace.record.output import OutputFolder
from musetrace.store import open_run
from musetrace.store.index import MANIFEST, fresh_manifest, index_run, keep_probe
from musetrace.store.kept_probe import PROBE_FILE, read_kept
from tests.builders import SMALL_RUN_TEXT, JournalBuilder, build_run_from_text, small_table
from tests.unit.fake_probe import install

Out = pytest.CaptureFixture[str]
PROBED: dict[str, Any] = {
    "measured_at": "2026-11-30T00:00:00+00:00",
    "device": {"kind": "cuda", "name": "NVIDIA H200"},
    "experiments": [
        {"name": "timer", "state": "measured", "facts": [{"name": "tick", "median": 32, "p10": 0.1}]}
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_run_from_text(tmp_path / "run", SMALL_RUN_TEXT, small_table(), blocks=2)


def document(capsys: Out, *argv: str, code: int) -> dict[str, Any]:
    assert main([*argv, "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert isinstance(told, dict)
    return told


@pytest.mark.parametrize("indexed", [True, False])
def test_facts_are_in_the_manifest_at_once(folder: Path, indexed: bool) -> None:
    if indexed:
        before = open_run(folder).manifest
    keep_probe(folder, PROBED)
    assert open_run(folder).manifest["probe"] == PROBED
    if indexed:
        assert {**before, "probe": PROBED} == fresh_manifest(folder)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_facts_survive_a_new_index(folder: Path) -> None:
    keep_probe(folder, PROBED)
    open_run(folder)
    index_run(folder)
    assert open_run(folder).manifest["probe"] == PROBED
    (folder / MANIFEST).unlink()
    assert open_run(folder).manifest["probe"] == PROBED


def test_a_journal_that_changed_makes_a_new_index_and_the_facts_stay(folder: Path) -> None:
    open_run(folder)
    journal = folder / "rank-0000.mtj"
    journal.write_bytes(journal.read_bytes()[:-5])
    keep_probe(folder, PROBED)
    run = open_run(folder)
    assert (run.verdict, run.manifest["probe"]) == ("incomplete", PROBED)


def test_later_facts_replace_earlier_ones(folder: Path) -> None:
    keep_probe(folder, PROBED)
    open_run(folder)
    keep_probe(folder, {**PROBED, "measured_at": "later"})
    assert open_run(folder).manifest["probe"]["measured_at"] == "later"


def test_a_run_without_journals_keeps_them_in_its_manifest(folder: Path) -> None:
    open_run(folder)
    for journal in folder.glob("*.mtj"):
        journal.unlink()
    keep_probe(folder, PROBED)
    (folder / PROBE_FILE).unlink()
    run = open_run(folder)
    assert run.manifest["probe"] == PROBED
    assert run.spans(0, 0).num_rows == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "list", "empty"])
def test_damaged_facts_are_said_and_the_run_is_read(folder: Path, damage: str, capsys: Out) -> None:
    keep_probe(folder, PROBED)
    path = folder / PROBE_FILE
    good = path.read_text()
    path.write_text({"flip": good.replace("32", "33"), "cut": good[:40], "list": "[]", "empty": ""}[damage])
    run = open_run(folder)
    assert run.spans(0, 0).num_rows == 4
    assert list(run.manifest["probe"]) == ["unreadable"]
    main(["info", str(folder), "--width", "140"])
    page = capsys.readouterr().out
    assert "probe    cannot be read: probe.json: " in page
    assert "musetrace probe --keep RUN measures again" in page


def test_facts_in_a_folder_that_cannot_be_written_leave_the_run_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_run(folder).manifest

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        keep_probe(folder, PROBED)
    monkeypatch.undo()
    assert open_run(folder).manifest == before
    assert read_kept(folder) is None


def test_an_output_that_is_replaced_loses_the_facts_of_the_run_before(folder: Path) -> None:
    keep_probe(folder, PROBED)
    OutputFolder(folder, force=True).clear()
    assert not folder.exists()


def test_info_tells_of_facts_and_of_none(folder: Path, capsys: Out) -> None:
    assert document(capsys, "info", str(folder), code=0)["probe"] is None
    main(["info", str(folder), "--width", "140"])
    assert "probe    no facts of the device are kept here" in capsys.readouterr().out
    keep_probe(folder, PROBED)
    assert document(capsys, "info", str(folder), code=0)["probe"] == PROBED
    main(["info", str(folder), "--width", "140"])
    shown = "probe    facts 1, experiments 1, measured 2026-11-30T00:00:00+00:00; --json has them\n"
    assert shown in capsys.readouterr().out
    assert main(["check", str(folder)]) == 0


def run_of_gpu(path: Path) -> Path:
    """A run that says it was recorded on the fake GPU."""
    builder = JournalBuilder(path, small_table(), 2, meta={"device": {"kind": "cuda", "name": "NVIDIA H200"}})
    builder.end()
    return path


def test_the_verb_keeps_what_it_printed(tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    folder = run_of_gpu(tmp_path / "run")
    printed = document(capsys, "probe", "--quick", "--keep", str(folder), code=0)
    assert open_run(folder).manifest["probe"] == printed
    # Measured again by itself, one experiment replaces its own facts alone.
    again = document(capsys, "probe", "--only", "timer", "--keep", str(folder), code=0)
    kept = open_run(folder).manifest["probe"]
    names = [entry["name"] for entry in printed["experiments"]]
    assert [entry["name"] for entry in kept["experiments"]] == names
    assert kept["experiments"][names.index("timer")] == again["experiments"][0]
    assert kept["experiments"][names.index("hop")] == printed["experiments"][names.index("hop")]


def test_facts_of_another_device_are_refused_before_anything_is_measured(
    folder: Path, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musetrace.cli.probe.run", lambda *_: pytest.fail("measured"))
    for path in (folder, run_of_gpu(tmp_path / "gpu")):
        assert main(["probe", "--device", "cpu", "--keep", str(path)]) == 1
        line = capsys.readouterr().err
        assert f"{path} was recorded on " in line
        assert line.endswith(": probe the device of the run\n")
        assert line.count("\n") == 1
    assert main(["probe", "--device", "cpu", "--keep", str(tmp_path)]) == 1
    assert "has no journal" in capsys.readouterr().err


def test_a_copied_run_brings_its_facts(folder: Path, tmp_path: Path) -> None:
    keep_probe(folder, PROBED)
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / MANIFEST).unlink(missing_ok=True)
    assert open_run(tmp_path / "copy").manifest["probe"] == PROBED
