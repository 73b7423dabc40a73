"""The command line as a whole: exit codes, one line for every error, what is loaded when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from musetrace import __version__
from musetrace.cli import main, verbs
from musetrace.cli.command import Command
from musetrace.cli.report.command import ReportCommand
from tests.builders import build_run_from_text
from tests.unit.decode_step_run import build_decode_steps

Out = pytest.CaptureFixture[str]
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
READING = ("report", "info", "check")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_decode_steps(tmp_path_factory.mktemp("cli") / "run")


def one_line(captured: tuple[str, str]) -> str:
    """The only line of stderr, after checking that it is the only thing printed."""
    out, err = captured
    assert out == ""
    assert err.startswith("musetrace: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err.removeprefix("musetrace: ").removesuffix("\n")


def test_version(capsys: Out) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"musetrace {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_every_verb(capsys: Out, argv: list[str]) -> None:
    assert main(argv) == 0
    out = capsys.readouterr().out
    for name, verb in verbs.VERBS.items():
        assert f"  {name:<8} {verb.help}\n" in out


@pytest.mark.parametrize("name", verbs.VERBS)
def test_each_verb_is_a_command_that_takes_json(capsys: Out, name: str) -> None:
    command = verbs.load_verb(name)
    assert isinstance(command, Command)
    assert (command.name, command.help) == (name, verbs.VERBS[name].help)
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: musetrace {name}" in out
    assert "--json" in out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["reprot"], "no verb 'reprot': did you mean report?"),
        (
            ["zzz"],
            "no verb 'zzz': there are record, report, explain, compare, view, overhead, probe, info, check",
        ),
        (
            ["\x1b[2J"],
            "no verb '\\x1b[2J': there are record, report, explain, compare, view, overhead, probe, "
            "info, check",
        ),
        (["--frobnicate", "report"], "unrecognized arguments: --frobnicate (musetrace --help tells more)"),
        (["report"], "the following arguments are required: run (musetrace report --help tells more)"),
        (
            ["report", "run", "--rank", "x\n"],
            "argument --rank: invalid int value: 'x\\n' (musetrace report --help tells more)",
        ),
        (["report", "run", "--js"], "unrecognized arguments: --js (musetrace report --help tells more)"),
        (["report", "run", "--width", "59"], "--width 59 is too narrow: give at least 60"),
    ],
)
def test_usage_errors_are_one_line_and_exit_code_2(capsys: Out, argv: list[str], said: str) -> None:
    assert main(argv) == 2
    assert one_line(capsys.readouterr()) == said


def not_runs(folder: Path) -> Iterator[Path]:
    """Paths that are no run, each in its own way."""
    yield folder / "missing"
    yield folder / "missing\x1b[31m\n"
    for name, content in (("text.mtj", b"not a journal"), ("file", b""), ("manifest.json", b"{}")):
        (folder / name).write_bytes(content)
        yield folder / name
    (folder / "empty").mkdir()
    yield folder / "empty"
    (folder / "junk").mkdir()
    (folder / "junk" / "rank-0000.mtj").write_bytes(os.urandom(4096))
    yield folder / "junk"
    (folder / "only_manifest").mkdir()
    (folder / "only_manifest" / "manifest.json").write_text("[" * 100_000)
    yield folder / "only_manifest"


@pytest.mark.parametrize("verb", READING)
def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path, capsys: Out, verb: str) -> None:
    for path in not_runs(tmp_path):
        for options in ([], ["--json"]):
            assert main([verb, str(path), *options]) == 1, path
            assert one_line(capsys.readouterr()).isprintable()


@pytest.mark.parametrize("verb", READING)
def test_exit_code_is_the_verdict(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    # Short names: a page is 80 columns wide, and a long path would be broken over two lines.
    monkeypatch.chdir(tmp_path)
    text = "r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000 1400"
    complete = build_run_from_text(tmp_path / "complete", text)
    killed = build_run_from_text(tmp_path / "killed", text, end=False)
    damaged = build_run_from_text(tmp_path / "damaged", text)
    journal = damaged / "rank-0000.mtj"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 0x10
    journal.write_bytes(content)
    for path, code, verdict in (
        (complete, 0, "complete"),
        (killed, 3, "incomplete"),
        (damaged, 3, "damaged"),
    ):
        assert main([verb, path.name]) == code
        out, err = capsys.readouterr()
        assert f"{path.name} is {verdict}" in out
        assert err == ""
        assert main([verb, str(path), "--json"]) == code
        assert json.loads(capsys.readouterr().out)["verdict"] == verdict


@pytest.mark.parametrize("verb", READING)
@pytest.mark.parametrize("sixteenth", range(16))
def test_a_run_is_readable_wherever_it_is_damaged(
    tmp_path: Path, capsys: Out, verb: str, sixteenth: int
) -> None:
    """The job table's chunk is most of a short journal: without it, jobs are shown by number."""
    damaged = build_run_from_text(
        tmp_path / "damaged", "r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000 1400"
    )
    journal = damaged / "rank-0000.mtj"
    content = bytearray(journal.read_bytes())
    content[64 + sixteenth * (len(content) - 64) // 16] ^= 0x10
    journal.write_bytes(content)
    assert main([verb, str(damaged), "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["verdict"] == "damaged"
    assert err == ""


def test_an_internal_error_is_one_line_too(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: ReportCommand, args: object) -> int:
        raise ValueError("broken\x1b\nhere")

    monkeypatch.setattr(ReportCommand, "run", broken)
    monkeypatch.delenv("MUSETRACE_DEBUG", raising=False)
    assert main(["report", "run"]) == 1
    line = one_line(capsys.readouterr())
    assert line == "ValueError: broken\\x1b\\x0ahere (MUSETRACE_DEBUG=1 shows the traceback)"
    monkeypatch.setenv("MUSETRACE_DEBUG", "1")
    assert main(["report", "run"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_ctrl_c_is_silent_and_130(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: ReportCommand, args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReportCommand, "run", interrupted)
    assert main(["report", "run"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verb", ["report", "info"])
def test_a_closed_pipe_is_silent(run_folder: Path, verb: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "musetrace", verb, str(run_folder)]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(run_folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "musetrace", "info", str(run_folder)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left on device" in one_line(("", done.stderr))


def test_a_terminal_without_utf8_gets_ascii(run_cli: RunCli, run_folder: Path) -> None:
    plain = run_cli("report", run_folder, env={"PYTHONIOENCODING": "ascii"})
    assert plain.returncode == 0
    assert plain.stdout.isascii()
    assert "#" in plain.stdout
    assert max(map(len, plain.stdout.splitlines())) <= 100
    fancy = run_cli("report", run_folder, env={"PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1"})
    assert len(fancy.stdout.splitlines()) == len(plain.stdout.splitlines())
    assert "\N{PLUS-MINUS SIGN} ns" in fancy.stdout
    assert "+- ns" in plain.stdout


def test_reading_a_run_loads_neither_torch_nor_the_dashboard(run_folder: Path) -> None:
    program = (
        "import sys\n"
        "from musetrace.cli import main\n"
        f"codes = [main([verb, {str(run_folder)!r}, '--json']) for verb in {READING!r}]\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(codes, sorted(loaded & {'torch', 'dash', 'plotly', 'flask', 'pandas'}), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == "[0, 0, 0] []\n"
