"""The call that measures the whole model: every stage has an outcome, whatever becomes of it."""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from musetrace.cli.verbs import load_verb
from tests.bench.stages import FAILED, OK, SKIPPED, TIMED_OUT, Stage, Stages
from tests.bench.whole_model import ALL_LAYERS, Wanted, stages_of


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_one_that_fails_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    stages = Stages(tmp_path, 60)
    there = tmp_path / "there"
    there.mkdir()
    figures = python("import os; print(os.path.basename(os.getcwd()))")
    assert stages.run(Stage("good", figures, 20, to="good.txt", folder=there))
    assert not stages.run(Stage("bad", python("raise SystemExit('no | GPU')"), 20, ("good",)))
    assert not stages.run(Stage("behind", python("open('made', 'w')"), 20, ("good", "bad")))
    assert stages.run(Stage("three", python("raise SystemExit(3)"), 20, good=(0, 3)))
    assert not stages.run(Stage("absent", [str(tmp_path / "no program")], 20))
    assert [one.state for one in stages.outcomes] == [OK, FAILED, SKIPPED, OK, FAILED]
    assert (tmp_path / "good.txt").read_text() == "there\n"
    table = stages.markdown().splitlines()
    assert len(table) == 2 + 5
    assert "exit code 1: no / GPU" in table[3]
    assert "without bad" in table[4]
    assert all(row.count("|") == 5 for row in table)
    assert not Path("made").exists()


def test_one_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    child = f"import time, pathlib; time.sleep(2); pathlib.Path({str(tmp_path / 'late')!r}).touch()"
    start = f"subprocess.run([sys.executable, '-c', {child!r}])"
    parent = f"import subprocess, sys; print('begun', flush=True); {start}"
    stages = Stages(tmp_path, 60)
    begin = time.monotonic()
    stages.run(Stage("long", python(parent), 1.0))
    assert time.monotonic() - begin < 10
    assert [(one.state, one.said) for one in stages.outcomes] == [(TIMED_OUT, "begun")]
    time.sleep(2.5)
    assert not (tmp_path / "late").exists()


def test_none_is_begun_when_no_time_is_left(tmp_path: Path) -> None:
    stages = Stages(tmp_path, 1.0)
    stages.run(Stage("late", python("pass"), 20))
    assert [(one.state, one.said) for one in stages.outcomes] == [(SKIPPED, "no time is left")]


@pytest.mark.parametrize(("layers", "guesses"), [(ALL_LAYERS, "tree"), (6, "tree"), (2, "none")])
def test_every_command_is_one_that_there_is(tmp_path: Path, layers: int, guesses: str) -> None:
    wanted = Wanted(2, layers, guesses, 8, 10, tmp_path, tmp_path / "work")
    names = [stage.name for stage in stages_of(wanted)]
    assert len(set(names)) == len(names)
    for stage in stages_of(wanted):
        assert set(stage.needs) <= set(names[: names.index(stage.name)])
        words = list(stage.command)
        if words[0] != sys.executable:
            continue
        while "-m" in words:
            at = words.index("-m")
            name, words = words[at + 1], words[at + 2 :]
            assert find_spec(name) is not None, name
            if name == "musetrace":
                parser = argparse.ArgumentParser(allow_abbrev=False)
                load_verb(words[0]).add_arguments(parser)
                parser.parse_args(words[1:])
                break
    recorded = [stage.command for stage in stages_of(wanted) if stage.name == "record sumsq"][0]
    assert ("--layers" in recorded) == (layers != ALL_LAYERS)
