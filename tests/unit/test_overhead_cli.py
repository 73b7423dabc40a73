"""`musetrace overhead --call`: a program of the user's from the command line, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import musetrace
from musetrace.cli import main
from musetrace.errors import MusetraceError

Out = pytest.CaptureFixture[str]

GOOD = """
import numpy
from beside import value

def make(stamps):
    return (lambda: numpy.full(4, value)), 2

def other_output(stamps):
    return lambda: numpy.full(4, value + (stamps == "store"))

def other_launches(stamps):
    return (lambda: None), 2 + (stamps == "register")

def number(stamps):
    return 3

def no_launches(stamps):
    return (lambda: None), 0

def raises(stamps):
    if stamps == "store":
        raise NotImplementedError("no\\nstore build")
    return lambda: None

def ends(stamps):
    raise SystemExit(5)

def fails(stamps):
    return lambda: 1 / 0

def text(stamps):
    return lambda: "text"

constant = 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prog.py").write_text(GOOD)
    (tmp_path / "beside.py").write_text("value = 2.5\n")
    (tmp_path / "broken.py").write_text("import beside\nraise ValueError('at once')\n")
    (tmp_path / "lacks.py").write_text("import nothing_of_this_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("beside", "broken", "lacks", "prog"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


QUICK = ("--rounds", "1", "--warm-up", "0", "--device", "cpu")


@pytest.mark.parametrize("call", ["prog.py:make", "prog:make"])
def test_the_command_line_measures_a_program(folder: Path, capsys: Out, call: str) -> None:
    assert main(["overhead", "--call", call, *QUICK, "-o", "out.json"]) == 0
    out = capsys.readouterr().out
    for words in (
        f"musetrace overhead: {call}",
        "equal bit for bit: 12 of float64 [4]",
        "2 launches in each",
    ):
        assert words in out
    assert "cannot tell" in out
    assert "1 rounds are too few" in out
    document = json.loads((folder / "out.json").read_text())
    assert document["sound"]
    assert main(["overhead", "--call", call, *QUICK, "--json", "--stamps", "mine"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [entry["side"] for entry in document["comparisons"]] == ["off again", "mine"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            "other_output",
            "DIFFERENT: store, round 0, step 0, against off: element [0] is 3.5, not 2.5; 4 of 4",
        ),
        ("other_launches", "DIFFERENT: register, round 0, step 0: 3 launches, where off made 2 launches"),
    ],
)
def test_what_differs_is_exit_code_3(folder: Path, capsys: Out, function: str, said: str) -> None:
    assert main(["overhead", "--call", f"prog.py:{function}", *QUICK, "--width", "200"]) == 3
    assert said in capsys.readouterr().out
    assert main(["overhead", "--call", f"prog.py:{function}", *QUICK, "--json"]) == 3
    assert not json.loads(capsys.readouterr().out)["sound"]


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--call", "prog"], 2, "--call prog names no function"),
        (["--call", ":make"], 2, "--call :make names no function"),
        (["--call", "nowhere.py:make"], 2, "there is no file nowhere.py"),
        (["--call", "nowhere_at_all:make"], 2, "there is no module nowhere_at_all"),
        (["--call", "prog.py:missing"], 2, "prog.py has no function missing"),
        (["--call", "prog:constant"], 2, "prog has no function constant"),
        (["--call", "broken.py:make"], 1, "broken.py failed while it was loaded: ValueError: at once"),
        (["--call", "broken:make"], 1, "broken failed while it was loaded: ValueError: at once"),
        (["--call", "lacks:make"], 1, "lacks failed while it was loaded: ModuleNotFoundError"),
        (["--call", "prog.py:number"], 1, "number('off') returned 3; return a function that runs one step"),
        (["--call", "prog.py:no_launches"], 1, "no_launches('off') returned (<function"),
        (
            ["--call", "prog.py:raises"],
            1,
            "raises('store') failed: NotImplementedError: no store build; mend it",
        ),
        (["--call", "prog.py:ends"], 1, "ends('off') failed: SystemExit: 5"),
        (["--call", "prog.py:fails"], 1, "the step made for 'off' failed: ZeroDivisionError"),
        (["--call", "prog.py:text"], 1, "the output of a step is str; give a numpy array"),
        (["--call", "prog.py:make", "--rounds", "0"], 2, "--rounds must be at least 1"),
        (["--call", "prog.py:make", "--steps", "-1"], 2, "--steps must be at least 1"),
        (["--call", "prog.py:make", "--warm-up", "-1"], 2, "--warm-up must be at least 0"),
        (["--call", "prog.py:make", "--stamps", "off"], 2, "stamps off cannot be measured"),
        (["--call", "prog.py:make", "--stamps", "a,a"], 2, "stamps a, a cannot be measured"),
        (["--call", "prog.py:make", "--stamps", ""], 2, "cannot be measured"),
        (
            ["--call", "prog.py:make", "--model", "mini"],
            2,
            "--model does not fit: it is for the built-in step",
        ),
        (["--call", "prog.py:make", "-o", "no/out.json"], 1, "does not exist; make it first"),
        (["--call", "prog.py:make", "-o", "prog.py"], 1, "prog.py exists; add --force"),
        (["--call", "prog.py:make", "-o", "."], 1, "cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_line(folder: Path, capsys: Out, argv: list[str], code: int, said: str) -> None:
    quick = [] if "--rounds" in argv or "--warm-up" in argv else QUICK
    assert main(["overhead", *argv, *quick]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_a_file_is_replaced_when_that_is_asked_for(folder: Path, capsys: Out) -> None:
    (folder / "out.json").write_text("old")
    assert main(["overhead", "--call", "prog.py:make", *QUICK, "-o", "out.json", "--force"]) == 0
    assert json.loads((folder / "out.json").read_text())["sound"]
    assert sorted(path.name for path in folder.glob("*out*")) == ["out.json"]


def test_a_device_without_a_gpu_is_one_line(folder: Path, capsys: Out) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for argv in (["--call", "prog.py:make"], ["--model", "mini"], ["--model", "muse-spark-open-tp8-slice"]):
        assert main(["overhead", *argv, "--device", "cuda", "--rounds", "1"]) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
    with pytest.raises(MusetraceError):
        musetrace.overhead(lambda stamps: lambda: None, device="gpu")
